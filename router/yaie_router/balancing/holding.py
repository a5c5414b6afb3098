"""Holds requests for a model that is scaled to zero until an engine has a place for them.

    asleep ──first request──▶ waking: all wait ──first engine──▶ draining: in turns, as places
       ▲                                                            get free ──none waits──▶ awake

The autoscaler sees how many wait (`yaie_router_pending_requests`) and starts engines. A model
sleeps only where `spec.autoscaling.min` is 0; a request for any other model without an engine gets
its 503 at once, and so does one for a suspended model, which no request wakes. An engine that wakes
gets no more than it runs at a time: the rest waits here, where further engines can take it, and
tenants take turns.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from yaie_api.errors import DeadlineExceededError, OverloadedError, UnavailableError
from yaie_router.balancing.wake_times import WakeTimes
from yaie_router.discovery.endpoints import Directory
from yaie_router.discovery.objects import Model
from yaie_router.tenants.fair_queue import FairQueue, QueueFullError

FIRST_TOLD_S: Final = 5.0
"""Nobody is told anything before: what fails by then still has a status of its own."""
TOLD_EVERY_S: Final = 5.0
_SUSPENDED_RETRY_S: Final = 60.0
_QUEUED: Final = "waiting for a place at an engine"

_Waiter = asyncio.Future[None]
Tell = Callable[[str], Awaitable[None]]
"""Is awaited with the stage of the model's start, as long as a request waits."""


@dataclass(frozen=True)
class Claim:
    """What is known of a request that waits. `cost`: its tokens, about. `patience_s`: how long its
    client lets it wait.
    """

    tenant: str = ""
    weight: float = 1.0
    cost: float = 1.0
    patience_s: float = math.inf


ANYBODY: Final = Claim()


class Holding:
    """The requests that wait: at most `most` for each model, each for `timeout_s`.

    `changed` has to be called after each change of the directory, and `left` when a request of a
    model has ended. `in_flight`: requests by model, those that wait included. `replicas`: routers
    that share the engines.
    """

    def __init__(
        self,
        directory: Directory,
        *,
        most: int,
        timeout_s: float,
        in_flight: Mapping[str, int],
        replicas: Callable[[], int] = lambda: 1,
    ) -> None:
        self._directory = directory
        self._most = most
        self._timeout_s = timeout_s
        self._in_flight = in_flight
        self._replicas = replicas
        self._lines: dict[str, _Line] = {}
        self._times = WakeTimes()

    @property
    def pending(self) -> dict[str, int]:
        """How many requests wait, by model."""
        return {name: len(line.queue) for name, line in self._lines.items() if line.queue}

    def changed(self) -> None:
        """Look at the directory again."""
        self._times.retain({model.name for model in self._directory.all()})
        for line in list(self._lines.values()):
            self._serve(line)

    def left(self, name: str) -> None:
        """Take in that a request of this model has ended: its place may be had."""
        if (line := self._lines.get(name)) is not None:
            if line.is_awake:
                self._times.freed(name, _now_s())
            self._serve(line)

    def holds(self, model: Model) -> bool:
        """Whether a request for this model has to wait.

        Raises:
            UnavailableError: the model is suspended, and has no engine.

        """
        return _sleeps(model) or model.name in self._lines

    async def place(self, model: Model, claim: Claim = ANYBODY, tell: Tell | None = None) -> float:
        """Wait until an engine has a place for a request that `holds`.

        Returns the seconds that it waited.

        Raises:
            DeadlineExceededError: its client's time limit has passed.
            OverloadedError: too many wait, of this tenant above all.
            UnavailableError: the model is suspended or deleted, or no engine was ready in time.

        """
        began_s = _now_s()
        line = self._lines.get(model.name)
        if line is None:
            line = self._lines[model.name] = _Line(model, FairQueue(self._most), began_s)
        waiter: _Waiter = asyncio.get_running_loop().create_future()
        try:
            displaced = line.queue.push(claim.tenant, claim.weight, claim.cost, waiter)
        except QueueFullError:
            raise self._full(line) from None
        if displaced is not None and not displaced.done():
            displaced.set_exception(self._full(line))
        self._serve(line)
        try:
            await self._wait(line, waiter, began_s, claim.patience_s, tell)
        finally:
            line.queue.remove(claim.tenant, waiter)
            self._end_if_empty(line)
        return _now_s() - began_s

    async def _wait(
        self, line: "_Line", waiter: _Waiter, began_s: float, patience_s: float, tell: Tell | None
    ) -> None:
        until_s = began_s + min(self._timeout_s, patience_s)
        told_s = began_s + FIRST_TOLD_S if tell else math.inf
        while not waiter.done():
            now_s = _now_s()
            if now_s >= until_s:
                raise self._late(line, patience_s)
            if tell is not None and now_s >= told_s:
                told_s = now_s + TOLD_EVERY_S
                await tell(self._stage(line))
            await asyncio.wait((waiter,), timeout=max(0.0, min(until_s, told_s) - now_s))
        waiter.result()

    def _serve(self, line: "_Line") -> None:
        """Let go on those who have a place now, or all where nobody has to wait any more."""
        try:
            places = self._places(line)
        except UnavailableError as error:
            self._refuse(line, error)
            return
        running = self._in_flight.get(line.model.name, 0) - len(line.queue)
        while running < places and (waiter := line.queue.pop()) is not None:
            if not waiter.done():  # else its client has left in this moment
                waiter.set_result(None)
                running += 1
        self._end_if_empty(line)

    def _places(self, line: "_Line") -> float:
        """Return how many requests the model's engines run at a time; infinite where no request
        waits for an engine.

        Raises:
            UnavailableError: the model is suspended or gone.

        """
        model = self._directory.find(line.model.served)
        if model is None or model.name != line.model.name:
            raise UnavailableError(f"Model {line.model.served!r} was deleted while it started.")
        line.model = model
        if _sleeps(model):
            line.is_awake = False
            return 0
        if not model.endpoints:
            return math.inf
        self._woke(line)
        return math.ceil(len(model.endpoints) * model.max_num_seqs / self._replicas())

    def _woke(self, line: "_Line") -> None:
        if not line.is_awake:
            line.is_awake = True
            self._times.woke(line.model.name, _now_s() - line.began_s, _now_s())

    def _refuse(self, line: "_Line", error: UnavailableError) -> None:
        while (waiter := line.queue.pop()) is not None:
            if not waiter.done():
                waiter.set_exception(error)
        self._end_if_empty(line)

    def _end_if_empty(self, line: "_Line") -> None:
        if not line.queue and self._lines.get(line.model.name) is line:
            del self._lines[line.model.name]

    def _stage(self, line: "_Line") -> str:
        return _QUEUED if line.is_awake else line.model.stage

    def _full(self, line: "_Line") -> OverloadedError:
        return OverloadedError(
            f"{len(line.queue)} requests wait for model {line.model.served!r} to start already.",
            retry_after_s=self._retry_after_s(line),
        )

    def _late(self, line: "_Line", patience_s: float) -> DeadlineExceededError | UnavailableError:
        awaiting = _QUEUED if line.is_awake else line.model.awaiting
        told = f"Model {line.model.served!r} did not start within"
        if patience_s <= self._timeout_s:
            return DeadlineExceededError(f"{told} the request's {patience_s:g} s: {awaiting}.")
        return UnavailableError(
            f"{told} {self._timeout_s:g} s: {awaiting}.", retry_after_s=self._retry_after_s(line)
        )

    def _retry_after_s(self, line: "_Line") -> float:
        waited_s = None if line.is_awake else _now_s() - line.began_s
        return self._times.retry_after_s(line.model.name, len(line.queue), waited_s)


@dataclass(eq=False)
class _Line:
    """Those who wait for one model, since `began_s`. `is_awake`: an engine is ready."""

    model: Model
    queue: FairQueue[_Waiter]
    began_s: float
    is_awake: bool = False


def _sleeps(model: Model) -> bool:
    """Whether a request for this model waits for an engine.

    Raises:
        UnavailableError: it has none and is suspended.

    """
    if model.endpoints:
        return False
    if model.suspended:
        raise UnavailableError(
            f"Model {model.served!r} is suspended: spec.suspend is true. No request starts it.",
            code="model_suspended",
            retry_after_s=_SUSPENDED_RETRY_S,
        )
    return model.wakes


def _now_s() -> float:
    return asyncio.get_running_loop().time()
