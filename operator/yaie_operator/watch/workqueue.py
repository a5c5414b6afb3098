"""A queue of keys, like client-go's workqueue: each key is queued at most once, and at most one
worker processes it at a time.

A key that is added while a worker processes it, or within `rest_s` after that, is queued again when
the rest is over: what a pass has caused comes as a dozen events, which one more pass answers. A
delayed key keeps its earliest time. A queue belongs to one event loop and is not thread-safe.
"""

import asyncio
from collections import deque
from collections.abc import Callable


class ShutDownError(Exception):
    """The queue hands out no more keys."""


class WorkQueue:
    """Keys to reconcile. Each back-off is multiplied by `jitter()`, which spreads retries.

    `rest_s`: seconds after a worker is done in which its key gets no other.
    """

    def __init__(
        self,
        *,
        retry_base_s: float,
        retry_max_s: float,
        rest_s: float = 0.0,
        jitter: Callable[[], float] = lambda: 1.0,
    ) -> None:
        self._retry_base_s = retry_base_s
        self._retry_max_s = retry_max_s
        self._rest_s = rest_s
        self._jitter = jitter
        self._ready: deque[str] = deque()
        self._queued: set[str] = set()
        self._active: set[str] = set()
        self._failures: dict[str, int] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._rests: dict[str, asyncio.TimerHandle] = {}
        self._wakeup = asyncio.Event()
        self._is_shut_down = False

    def __len__(self) -> int:
        """Number of keys that wait for a worker, without delayed keys."""
        return len(self._ready)

    def add(self, key: str) -> None:
        """Queue a key unless it is already queued."""
        if key in self._queued:
            return
        self._queued.add(key)
        if key not in self._active:
            self._ready.append(key)
            self._wakeup.set()

    def add_after(self, key: str, delay_s: float) -> None:
        """Queue a key after a delay, unless an earlier time is already set for it."""
        loop = asyncio.get_running_loop()
        pending = self._timers.get(key)
        if pending is not None and pending.when() <= loop.time() + delay_s:
            return
        if pending is not None:
            pending.cancel()
        self._timers[key] = loop.call_later(delay_s, self._due, key)

    def retry(self, key: str) -> float:
        """Queue a key after its back-off, which doubles with each failure. Returns the delay."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay_s = min(self._retry_base_s * 2.0 ** min(failures, 30), self._retry_max_s)
        delay_s *= self._jitter()
        self.add_after(key, delay_s)
        return delay_s

    def forget(self, key: str) -> None:
        """Reset a key's back-off after a success."""
        self._failures.pop(key, None)

    async def get(self) -> str:
        """Wait for the next key; the caller must call `done` with it.

        Raises:
            ShutDownError: `shut_down` was called, before or meanwhile.

        """
        while not self._ready and not self._is_shut_down:
            self._wakeup.clear()
            await self._wakeup.wait()
        if self._is_shut_down:
            raise ShutDownError
        key = self._ready.popleft()
        self._queued.discard(key)
        self._active.add(key)
        return key

    def done(self, key: str) -> None:
        """Finish a key; after its rest it is queued again if it was added meanwhile."""
        if self._rest_s and key not in self._failures:  # a failure has its back-off
            loop = asyncio.get_running_loop()
            self._rests[key] = loop.call_later(self._rest_s, self._release, key)
        else:
            self._release(key)

    def _release(self, key: str) -> None:
        self._rests.pop(key, None)
        self._active.discard(key)
        if key in self._queued:
            self._ready.append(key)
            self._wakeup.set()

    def shut_down(self) -> None:
        """Hand out no more keys. Those that workers have are finished as before."""
        self._is_shut_down = True
        self._wakeup.set()

    def close(self) -> None:
        """Cancel every delayed key, and every rest."""
        for timer in (*self._timers.values(), *self._rests.values()):
            timer.cancel()
        self._timers.clear()
        self._rests.clear()

    def check(self) -> None:
        """Integrity check: the deque holds each queued key once, except those being processed."""
        waiting = list(self._ready)
        assert len(waiting) == len(set(waiting)), waiting  # noqa: S101 - integrity check for tests
        assert set(waiting) == self._queued - self._active, waiting  # noqa: S101 - same

    def _due(self, key: str) -> None:
        del self._timers[key]
        self.add(key)
