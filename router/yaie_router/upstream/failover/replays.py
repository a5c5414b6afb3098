"""Counts the replays that each engine computes, and has others wait for their turn."""

import asyncio
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager


class Replays:
    """`counts`: replays by endpoint, which callers may only read."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._waiting: deque[asyncio.Future[None]] = deque()

    def begin(self, endpoint: str) -> "Turn":
        """Count one at this endpoint until the turn ends."""
        self.counts[endpoint] += 1
        return Turn(self, endpoint)

    def end(self, endpoint: str) -> None:
        """A replay has given its first token, or has failed."""
        self.counts[endpoint] -= 1
        if not self.counts[endpoint]:
            del self.counts[endpoint]
        self.wake()

    def wake(self) -> None:
        """Have all that wait look again, in order: what they may use differs."""
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)

    async def change(self) -> None:
        """Wait until a replay ends."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self._queued(waiter):
            await waiter

    @contextmanager
    def _queued(self, waiter: "asyncio.Future[None]") -> Iterator[None]:
        self._waiting.append(waiter)
        try:
            yield
        finally:
            self._waiting.remove(waiter)


class Turn:
    """One replay. `end` may be called again."""

    def __init__(self, replays: Replays, endpoint: str) -> None:
        self._replays = replays
        self._endpoint = endpoint
        self._is_open = True

    def end(self) -> None:
        if self._is_open:
            self._is_open = False
            self._replays.end(self._endpoint)
