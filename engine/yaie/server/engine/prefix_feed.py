"""The prefix keys of the engine process, for the readers of `GET /prefixes`.

It follows the updates of the engine process, and keeps the last of them as lines that all readers
share. A reader that is further behind than they reach gets a snapshot instead, so a slow one costs
no memory of its own but what it is being sent.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Final

from yaie_api.prefix import Outcome, PrefixIndex, PrefixUpdate, encode, snapshot

MAX_LINES: Final = 64
"""Lines that are kept for readers: 6 s of changes, at most 4 MiB."""


class PrefixFeed:
    """Which keys the engine process has. `wanted`: whether it should publish them."""

    def __init__(self, *, wanted: bool = False) -> None:
        self.wanted = wanted
        self._index = PrefixIndex()
        self._lines: deque[bytes] = deque(maxlen=MAX_LINES)
        self._end = 0
        """Number of lines there have been, of which `_lines` are the last."""
        self._news = asyncio.Event()
        self._closed = False

    @property
    def num_keys(self) -> int:
        """Keys that are published now."""
        return len(self._index.tokens)

    @property
    def is_open(self) -> bool:
        """Whether there is something to read."""
        return self._index.current and not self._closed

    def take(self, update: PrefixUpdate) -> Outcome:
        """Take an update of the engine process, and pass it on."""
        outcome = self._index.apply(update)
        if outcome is Outcome.APPLIED:
            if update.parts:
                self._skip()
            else:
                self._lines.append(encode(update))
                self._end += 1
            self._wake()
        return outcome

    def reset(self) -> None:
        """The engine process is gone, and with it its cache: every stream ends."""
        self._index = PrefixIndex()
        self._skip()
        self._wake()

    def close(self) -> None:
        """End every stream, because the server ends."""
        self._closed = True
        self._wake()

    async def lines(self) -> AsyncIterator[bytes]:
        """What one reader is sent, a line or some at a time, until the engine process is gone."""
        index, at = self._index, -1
        while self._index is index and self.is_open:
            if at < self._end - len(self._lines):
                at = self._end
                for part in snapshot(
                    index.tokens, epoch=index.epoch, sequence=index.sequence, load=index.load
                ):
                    yield encode(part)
            elif at < self._end:
                missing = self._end - at
                at = self._end
                yield b"".join(list(self._lines)[-missing:])
            else:
                await self._news.wait()

    def _skip(self) -> None:
        """Make every reader begin again with a snapshot."""
        self._lines.clear()
        self._end += 1

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()
