"""Keeps the bodies of requests whose streams can be continued, within a bound of memory.

A body that is kept longer than a moment, or when there is little room left, is compressed in a
thread: a prompt of 200 KiB takes about 3 ms of CPU there, and a third of its memory.
"""

import asyncio
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import Final

COMPRESSED_FROM_BYTES: Final = 8 << 10
COMPRESSED_AFTER_S: Final = 1.0
"""Most streams of long prompts last longer, and those that do not would waste the work."""


class HeldBody:
    """A body that is kept until `release`."""

    def __init__(self, bodies: "HeldBodies", body: bytes) -> None:
        self._bodies = bodies
        self._data = body
        self._is_compressed = False
        self._timer: asyncio.TimerHandle | None = None
        if len(body) >= COMPRESSED_FROM_BYTES:
            loop = asyncio.get_running_loop()
            after_s = 0.0 if bodies.is_half_full else COMPRESSED_AFTER_S
            self._timer = loop.call_later(after_s, bodies.compress, self)

    @property
    def size(self) -> int:
        """Bytes of memory that it takes."""
        return len(self._data)

    @property
    def data(self) -> bytes:
        """The body as it came."""
        return zlib.decompress(self._data) if self._is_compressed else self._data

    def release(self) -> None:
        """Drop it. May be called again."""
        if self._timer is not None:
            self._timer.cancel()
        self._bodies.change(-len(self._data))
        self._data, self._is_compressed = b"", False

    def replace(self, whole: bytes, compressed: bytes) -> None:
        """Keep the compressed form of `whole`, if that is still kept and it is worth it."""
        if self._data is whole and len(compressed) < len(whole):
            self._bodies.change(len(compressed) - len(whole))
            self._data, self._is_compressed = compressed, True


class HeldBodies:
    """All bodies that are kept: at most `limit_bytes` together."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._pool: ThreadPoolExecutor | None = None
        self.size_bytes = 0

    @property
    def is_half_full(self) -> bool:
        return self.size_bytes > self._limit_bytes // 2

    def hold(self, body: bytes) -> HeldBody | None:
        """Keep a body; None: there is no room."""
        if self.size_bytes + len(body) > self._limit_bytes:
            return None
        self.size_bytes += len(body)
        return HeldBody(self, body)

    def change(self, by_bytes: int) -> None:
        """A body of these grew or shrank."""
        self.size_bytes += by_bytes

    def compress(self, body: HeldBody) -> None:
        """Compress a body in the thread of all bodies."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="bodies")
        whole = body.data
        if not whole:
            return
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(self._pool, zlib.compress, whole, 1)

        def done(work: "asyncio.Future[bytes]") -> None:
            if not work.cancelled():
                body.replace(whole, work.result())

        work.add_done_callback(done)

    def close(self) -> None:
        """End the thread."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
