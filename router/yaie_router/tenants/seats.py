"""Seats at engines: a request waits here while all are taken, and tenants take turns by tokens.

An engine runs so many sequences at a time. What it is sent beyond that would wait in its own queue,
in the order in which it came, behind whoever sends most.
"""

import asyncio
import math
from collections.abc import Callable
from typing import Final

from yaie_api.errors import DeadlineExceededError, OverloadedError, UnavailableError
from yaie_router.tenants.fair_queue import FairQueue, QueueFullError

_SMOOTHING: Final = 0.1
_LONGEST_RETRY_S: Final = 60.0

_Waiter = asyncio.Future[None]


class Place:
    """A request's place among those of its model. `cost`: tokens, an estimate until `settle`.
    `patience_s`: how long its client lets it wait.
    """

    def __init__(self, tenant: str, weight: float, cost: float) -> None:
        self.patience_s = math.inf
        self.tenant: Final = tenant
        self.weight: Final = weight
        self.cost: Final = cost
        self.over = 0.0

    def settle(self, tokens: float) -> None:
        """Say what it has taken in fact, before it ends."""
        self.over = tokens - self.cost


class Seats:
    """The seats of one model. `most`: requests that may wait, each for `timeout_s`."""

    def __init__(self, clock: Callable[[], float], *, most: int, timeout_s: float) -> None:
        self._clock = clock
        self._timeout_s = timeout_s
        self._queue: FairQueue[_Waiter] = FairQueue(most)
        self._seats = 0
        self._running = 0
        self._left_s = clock()
        self._gap_s = 1.0

    @property
    def is_idle(self) -> bool:
        return not self._running and not self._queue

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def resize(self, seats: int) -> None:
        """Say how many seats there are now."""
        self._seats = seats
        self._seat_waiting()

    async def take(self, place: Place) -> None:
        """Take a seat, until `leave`; wait for it first.

        Raises:
            OverloadedError: too many wait, of this tenant above all.
            DeadlineExceededError: its client's time limit has passed.
            UnavailableError: no seat was free in time.

        """
        if self._running < self._seats and not self._queue:
            self._queue.passed(place.tenant, place.weight, place.cost)
            self._running += 1
        else:
            await self._wait(place)

    def retry_after_s(self) -> float:
        """When those who wait now will have had a seat, as fast as seats become free."""
        return min(_LONGEST_RETRY_S, max(1.0, (len(self._queue) + 1) * self._gap_s))

    async def _wait(self, place: Place) -> None:
        waiter: _Waiter = asyncio.get_running_loop().create_future()
        try:
            displaced = self._queue.push(place.tenant, place.weight, place.cost, waiter)
        except QueueFullError:
            raise self._full() from None
        if displaced is not None and not displaced.done():
            displaced.set_exception(self._full())
        try:
            async with asyncio.timeout(min(self._timeout_s, place.patience_s)):
                await waiter
        except BaseException as error:
            self._queue.remove(place.tenant, waiter)
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self.leave(place)  # it was given a seat at the last moment
            if isinstance(error, TimeoutError) and place.patience_s <= self._timeout_s:
                raise DeadlineExceededError(
                    "All engines were busy until the request's time limit passed."
                ) from None
            if isinstance(error, TimeoutError):
                raise UnavailableError(
                    f"All engines were busy for {self._timeout_s:g} s.",
                    retry_after_s=self.retry_after_s(),
                ) from None
            raise

    def leave(self, place: Place) -> None:
        """Give the seat to the next."""
        now_s = self._clock()
        if self._queue:  # else the gap says how fast requests come, not how fast seats get free
            self._gap_s += _SMOOTHING * (now_s - self._left_s - self._gap_s)
        self._left_s = now_s
        self._running -= 1
        self._queue.correct(place.tenant, place.over)
        self._seat_waiting()
        if not self._running and not self._queue:
            self._queue.forget()

    def _seat_waiting(self) -> None:
        while self._running < self._seats and (waiter := self._queue.pop()) is not None:
            if not waiter.done():  # else its client has left in this moment
                waiter.set_result(None)
                self._running += 1

    def _full(self) -> OverloadedError:
        return OverloadedError(
            f"All engines are busy, and {len(self._queue)} requests wait.",
            retry_after_s=self.retry_after_s(),
        )
