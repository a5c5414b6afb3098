"""Delivers one answer or several to a sink, as fast as the client reads."""

import asyncio
from collections.abc import Sequence

from yaie.server.answers.answer import Answer, Sink
from yaie.server.answers.output import Delta
from yaie.server.engine.generation import Room


async def relay(answers: Sequence[Answer], sink: Sink, room: Room) -> None:
    """Deliver answers to one sink at the same time, while there is room. Outputs are numbered over
    all answers: those of the first, then those of the second. The first error is raised and ends
    all of them. At the end, all are closed.
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
    """Passes deltas to another sink, with `first` added to the number of the output."""

    def __init__(self, sink: Sink, first: int) -> None:
        self._sink = sink
        self._first = first

    def text(self, index: int, text: str) -> None:
        self._sink.text(self._first + index, text)

    def delta(self, index: int, delta: Delta) -> None:
        self._sink.delta(self._first + index, delta)
