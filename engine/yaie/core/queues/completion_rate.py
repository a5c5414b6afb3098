"""The rate at which outputs complete, from which a refused client gets its Retry-After."""

import math

MIN_RETRY_S = 1.0
MAX_RETRY_S = 60.0
UNKNOWN_RETRY_S = 2.0
"""Used as long as no output has ended."""


class CompletionRate:
    """Outputs completed per second of busy time, an exponential average over about `window_s`
    seconds.
    """

    def __init__(self, window_s: float = 10.0) -> None:
        self._window_s = window_s
        self._count = 0.0
        self._seen_s = 0.0
        self._at_s: float | None = None

    def resume(self, now: float) -> None:
        """A request arrives at `now` after an idle time, which is not counted."""
        self._at_s = now

    def record(self, now: float, ended: int) -> None:
        """Count `ended` outputs, completed by the time `now` (seconds of the caller's clock)."""
        elapsed_s = 0.0 if self._at_s is None else max(0.0, now - self._at_s)
        self._at_s = now
        decay = math.exp(-elapsed_s / self._window_s)
        self._count = self._count * decay + ended
        self._seen_s = self._seen_s * decay + elapsed_s

    @property
    def per_second(self) -> float:
        return self._count / self._seen_s if self._seen_s > 0 else 0.0

    def retry_after_s(self, waiting: int) -> float:
        """Expected seconds until `waiting` outputs have completed, within MIN_RETRY_S ..
        MAX_RETRY_S.
        """
        rate = self.per_second
        if rate <= 0:
            return UNKNOWN_RETRY_S if waiting else MIN_RETRY_S
        return min(max(waiting / rate, MIN_RETRY_S), MAX_RETRY_S)
