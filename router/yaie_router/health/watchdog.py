"""Deadlines of requests that wait for their engines, measured by tokens and not by bytes.

Each attempt registers a `Wait`. `end_overdue` looks at all of them a few times a second and ends
those that are overdue, so that a token costs no timer. A wait is not overdue while its engine gives
tokens to others, because then it is queued, not forgotten; that lasts at most `most_s`.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal

from yaie_router.discovery.objects import Endpoint

End = Literal["timeout", "lost"]


class WaitEndedError(Exception):
    """The wait was ended: too long (`timeout`), or its endpoint has gone (`lost`)."""

    def __init__(self, end: End) -> None:
        super().__init__(end)
        self.end: End = end


@dataclass(eq=False)
class Wait:
    """One attempt's wait for its engine. `began_s`, `since_s`: on the watchdog's clock.

    `limit_s`: how long without a token; `most_s`: how long in any case, counted from `since_s`.
    `since_s` is set where a wait goes on. `is_committed`: no other engine can take
    the request over: the client has bytes of the answer, or only this one has what is asked for.
    `is_paused`: the client is waited for, not the engine. `is_resumable`: the client has a part of
    the answer, and another engine can go on.
    """

    model: str
    endpoint: Endpoint
    limit_s: float
    most_s: float
    is_committed: bool = False
    began_s: float = 0.0
    since_s: float = 0.0
    is_paused: bool = False
    is_resumable: bool = False
    ended: End | None = None
    task: "asyncio.Task[object] | None" = field(default=None, repr=False)


def is_overdue(wait: Wait, progress_s: float, now_s: float) -> bool:
    """Whether the wait must end. `progress_s`: when its engine last gave a token to anybody."""
    if wait.is_paused or now_s - wait.since_s < wait.limit_s:
        return False
    return now_s - wait.since_s >= wait.most_s or now_s - progress_s >= wait.limit_s


def suspects(
    waits: Iterable[Wait], progress_s: dict[str, float], now_s: float, after_s: float
) -> set[Endpoint]:
    """Return the endpoints that somebody waits for and that gave nobody a token for `after_s`."""
    return {
        wait.endpoint
        for wait in waits
        if not wait.is_paused
        and now_s - max(wait.since_s, progress_s.get(wait.endpoint.name, 0.0)) >= after_s
    }


class Watchdog:
    """The waits of all attempts, by endpoint."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._waits: defaultdict[str, set[Wait]] = defaultdict(set)
        self._progress_s: dict[str, float] = {}

    def waiting(self, wait: Wait) -> "_Waiting":
        """Register the wait while the context is open.

        Raises:
            WaitEndedError: the wait was ended.

        """
        return _Waiting(self, wait)

    def begin(self, wait: Wait) -> None:
        """Register a wait of the current task, which is cancelled where the wait is ended."""
        wait.began_s = self._clock()
        wait.since_s = wait.since_s or wait.began_s
        wait.task = asyncio.current_task()
        self._waits[wait.endpoint.name].add(wait)

    def forget(self, wait: Wait) -> None:
        """Take back what `begin` did."""
        wait.task = None
        waits = self._waits[wait.endpoint.name]
        waits.discard(wait)
        if not waits:
            del self._waits[wait.endpoint.name]

    def progressed(self, wait: Wait) -> None:
        """Note that the wait's engine gave a token."""
        wait.since_s = self._progress_s[wait.endpoint.name] = self._clock()

    def resumed(self, wait: Wait) -> None:
        """Note that the client reads again, so that the engine is waited for from now on."""
        wait.is_paused = False
        wait.since_s = self._clock()

    def all(self) -> list[Wait]:
        return [wait for waits in self._waits.values() for wait in waits]

    def suspects(self, after_s: float) -> set[Endpoint]:
        now_s = self._clock()
        silent = [
            wait
            for name, waits in self._waits.items()
            if now_s - self._progress_s.get(name, 0.0) >= after_s  # else none of them: most engines
            for wait in waits
        ]
        return suspects(silent, self._progress_s, now_s, after_s)

    def end_overdue(self) -> None:
        """End the waits that are overdue."""
        now_s = self._clock()
        late = [wait for wait in self.all() if now_s - wait.since_s >= wait.limit_s]
        for wait in late:
            if is_overdue(wait, self._progress_s.get(wait.endpoint.name, 0.0), now_s):
                _end(wait, "timeout")

    def waits_of(self, endpoint: str) -> list[Wait]:
        return list(self._waits.get(endpoint, ()))

    def waited_for(self) -> list[str]:
        """Names of the endpoints that somebody waits for."""
        return list(self._waits)

    def release(self, endpoint: str) -> None:
        """End the waits for an endpoint that is lost, where another can take the request over."""
        for wait in self.waits_of(endpoint):
            if not wait.is_committed:
                _end(wait, "lost")

    def release_stalled(self, endpoint: str, after_s: float) -> None:
        """End the waits of streams that can go on elsewhere and had no token for `after_s`."""
        now_s = self._clock()
        for wait in self.waits_of(endpoint):
            if wait.is_resumable and not wait.is_paused and now_s - wait.since_s >= after_s:
                _end(wait, "lost")

    def retain(self, endpoints: set[str]) -> None:
        """Forget the progress of endpoints that no longer exist."""
        for name in self._progress_s.keys() - endpoints:
            del self._progress_s[name]


class _Waiting:
    """The context of a wait: `asyncio.timeout` without a timer, at a third of its cost."""

    def __init__(self, watchdog: Watchdog, wait: Wait) -> None:
        self._watchdog = watchdog
        self._wait = wait

    async def __aenter__(self) -> None:
        self._watchdog.begin(self._wait)
        task = self._wait.task
        self._cancelling = task.cancelling() if task is not None else 0

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        wait = self._wait
        task = wait.task
        self._watchdog.forget(wait)
        if wait.ended is None or task is None:
            return
        # What came beside the end of the wait, a client's leaving or an error, counts more.
        if task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise WaitEndedError(wait.ended) from None


def _end(wait: Wait, end: End) -> None:
    if wait.ended is None and wait.task is not None:
        wait.ended = end
        wait.task.cancel()
