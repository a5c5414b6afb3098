"""Steps the engine's loop in the caller's thread until its requests are done.

The port is a pair of lists. Threads take turns, and whatever ends a turn (the last answer, an
error, Ctrl-C) leaves the loop at rest for the next one.
"""

import time
from itertools import count
from threading import Lock
from typing import TypeVar

from yaie.core.messages import Abort, Command, Event, Rejected, ResetPrefixCache, Tokens
from yaie.interrupts import Interrupts
from yaie.offline.garbage import frozen
from yaie.offline.requests import Request
from yaie.progress import Progress
from yaie.runtime.loop.engine_loop import COMPILING_WAIT_S, EngineLoop
from yaie.runtime.startup.factory import Engine
from yaie.runtime.worker.runner import StepHandle
from yaie_api.errors import EngineError, InvalidRequestError, YaieError

RequestT = TypeVar("RequestT", bound=Request)


class Driver:
    """Owns the loop of an engine in this process."""

    def __init__(self, engine: Engine) -> None:
        self._port = _ListPort()
        self._loop: EngineLoop[StepHandle] | None = engine.loop(self._port)
        self._ids = count()
        self._turn = Lock()  # whoever steps the loop takes all events

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs or waits."""
        return self._loop is None or self._loop.is_idle

    def new_id(self) -> str:
        """An id that no other request of this engine has."""
        return f"llm-{next(self._ids)}"

    def run(self, requests: list[RequestT], *, shown: bool) -> list[RequestT]:
        """Step the loop until every request is done. Other threads wait for their turn.

        Raises:
            YaieError: one was refused or failed; all are ended.
            KeyboardInterrupt: Ctrl-C; all are ended.
            RuntimeError: the driver is closed.

        """
        live: dict[str, Request] = {request.message.request_id: request for request in requests}
        with (
            self._turn,
            Interrupts() as interrupts,
            Progress(len(requests), shown=shown) as progress,
            frozen(),
        ):
            loop = self._open()
            self._port.inbox.extend(request.message for request in requests)
            try:
                while live:
                    loop.step()
                    interrupts.check()
                    for event in self._port.take():
                        self._handle(event, live, progress)
            finally:
                self._abandon(loop, live)
        return requests

    def reset_prefix_cache(self) -> None:
        """Forget every cached prefix.

        Raises:
            RuntimeError: the driver is closed.

        """
        with self._turn:
            loop = self._open()
            self._port.inbox.append(ResetPrefixCache(self.new_id()))
            self._rest(loop)

    def close(self) -> None:
        """End the engine's threads and let go of the engine, once nobody has a turn."""
        with self._turn:
            loop, self._loop = self._loop, None
            if loop is not None:
                loop.close()

    def _open(self) -> EngineLoop[StepHandle]:
        if self._loop is None:
            raise RuntimeError("This LLM is closed.")
        return self._loop

    def _handle(self, event: Event, live: dict[str, Request], progress: Progress) -> None:
        if isinstance(event, Rejected):
            live.pop(event.request_id)
            raise _error(event)
        if not isinstance(event, Tokens) or event.request_id not in live:
            return
        request = live[event.request_id]
        if (abort := request.push(event)) is not None:
            self._port.inbox.append(abort)
        progress.add_tokens(len(event.token_ids))
        if request.done:
            del live[event.request_id]
            progress.add_request()

    def _abandon(self, loop: EngineLoop[StepHandle], live: dict[str, Request]) -> None:
        """End what an error or Ctrl-C left running, and see the loop come to rest. (It need not
        fall idle: what a second Ctrl-C has torn apart never ends.)
        """
        self._port.inbox.extend(Abort(request_id) for request_id in live)
        self._rest(loop)

    def _rest(self, loop: EngineLoop[StepHandle]) -> None:
        while loop.step():
            continue
        self._port.take()


class _ListPort:
    """The loop's port as two lists: what goes in and what comes back."""

    def __init__(self) -> None:
        self.inbox: list[Command] = []
        self._outbox: list[Event] = []

    def drain(self, *, wait_s: float) -> list[Command]:
        if 0 < wait_s <= COMPILING_WAIT_S:  # for a thread of ours; nothing comes from outside
            time.sleep(wait_s)
        commands, self.inbox = self.inbox, []
        return commands

    def publish(self, events: list[Event]) -> None:
        self._outbox.extend(events)

    def take(self) -> list[Event]:
        events, self._outbox = self._outbox, []
        return events


def _error(event: Rejected) -> YaieError:
    kind = InvalidRequestError if event.status == InvalidRequestError.status else EngineError
    return kind(event.message, param=event.param, code=event.code)
