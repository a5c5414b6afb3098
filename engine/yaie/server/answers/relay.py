"""From one answer or several to one place, as fast as that place takes it."""

import asyncio
from collections.abc import Sequence

from yaie.server.answers.answer import Answer, Sink
from yaie.server.answers.output import Delta
from yaie.server.engine.generation import Room


async def relay(answers: Sequence[Answer], sink: Sink, room: Room) -> None:
    """Deliver several answers at once, as far as there is room. Outputs are counted through: those
    of the first answer, then those of the second. The first error ends all of them and is raised;
    in the end all are closed.
    """

    def resume() -> None:
        for answer in answers:
            answer.resume()

    room.on_room = resume
    try:
        if len(answers) == 1:
            await answers[0].deliver(sink, room)
            return
        firsts = (place * answers[0].num_outputs for place in range(len(answers)))
        sinks = (_CountedOn(sink, first) for first in firsts)
        await asyncio.gather(*(one.deliver(s, room) for one, s in zip(answers, sinks, strict=True)))
    finally:
        for answer in answers:
            answer.close()


class _CountedOn:
    """A sink whose first output is output `first` of another one."""

    def __init__(self, sink: Sink, first: int) -> None:
        self._sink = sink
        self._first = first

    def text(self, index: int, text: str) -> None:
        self._sink.text(self._first + index, text)

    def delta(self, index: int, delta: Delta) -> None:
        self._sink.delta(self._first + index, delta)
