"""A one-line progress display for offline generation, shown only if stderr is a terminal."""

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, TextIO

INTERVAL_S = 0.1


class Progress:
    """Displays `12/64 requests · 1,234 tokens · 890 tokens/s`, rewritten in place."""

    def __init__(
        self,
        n_requests: int,
        *,
        shown: bool,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream or sys.stderr
        self._shown = shown and self._stream.isatty()
        self._clock = clock
        self._n_requests = n_requests
        self._done = 0
        self._tokens = 0
        self._started_s = clock()
        self._drawn_s = self._started_s

    def __enter__(self) -> Self:
        if self._shown:
            self._draw()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._shown:
            self._draw()
            self._stream.write("\n")

    def add_tokens(self, n_tokens: int) -> None:
        """Count generated tokens."""
        self._tokens += n_tokens
        if self._shown and self._clock() - self._drawn_s >= INTERVAL_S:
            self._draw()

    def add_request(self) -> None:
        """Count a finished request."""
        self._done += 1

    def _draw(self) -> None:
        self._drawn_s = self._clock()
        rate = self._tokens / max(self._drawn_s - self._started_s, 1e-9)
        self._stream.write(
            f"\r{self._done}/{self._n_requests} requests · {self._tokens:,} tokens · "
            f"{rate:,.0f} tokens/s\033[K"
        )
        self._stream.flush()
