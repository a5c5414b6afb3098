"""How long models take to wake, and how fast those who waited get places: when to come again."""

from collections.abc import Collection
from typing import Final

UNKNOWN_S: Final = 10.0
"""Of a model that has not woken yet, or takes longer than it did before."""
_LONGEST_S: Final = 60.0
_SMOOTHING: Final = 0.1


class WakeTimes:
    """What was measured of each model. Times in seconds, of one clock."""

    def __init__(self) -> None:
        self._wake_s: dict[str, float] = {}
        self._gap_s: dict[str, float] = {}
        self._freed_s: dict[str, float] = {}

    def woke(self, model: str, seconds: float, now_s: float) -> None:
        """Learn that a first engine was ready after `seconds`; requests get places from now on."""
        before_s = self._wake_s.get(model, seconds)
        self._wake_s[model] = (before_s + seconds) / 2
        self._freed_s[model] = now_s

    def freed(self, model: str, now_s: float) -> None:
        """Learn that a place has become free while others wait."""
        gap_s = now_s - self._freed_s.get(model, now_s)
        before_s = self._gap_s.get(model, gap_s)
        self._gap_s[model] = before_s + _SMOOTHING * (gap_s - before_s)
        self._freed_s[model] = now_s

    def retry_after_s(self, model: str, waiting: int, waited_s: float | None) -> float:
        """Return when a place among `waiting` is likely to be free, from 1 to 60 s.

        `waited_s`: for how long the model has been waking; None: it is awake.
        """
        drain_s = self._gap_s.get(model, 0.0) * (1 if waited_s is not None else waiting + 1)
        left_s = 0.0
        if waited_s is not None:
            left_s = self._wake_s.get(model, UNKNOWN_S) - waited_s
            if left_s <= 0:
                left_s = UNKNOWN_S
        return min(_LONGEST_S, max(1.0, left_s + drain_s))

    def retain(self, models: Collection[str]) -> None:
        """Forget other models."""
        for known in (self._wake_s, self._gap_s, self._freed_s):
            for name in known.keys() - models:
                del known[name]
