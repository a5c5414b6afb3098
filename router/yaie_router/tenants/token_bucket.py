"""A token bucket. Pure: the caller tells the time."""

from typing import Final

_PERIOD_S: Final = 60.0


class TokenBucket:
    """Holds at most `per_minute` units, is full at first, and fills at that rate all the time.

    What is taken in any time of t seconds is at most `per_minute` * (1 + t / 60). One request for
    more than the bucket holds passes when it is full, and empties it below zero, as `charge` may.
    """

    def __init__(self, per_minute: int, now_s: float) -> None:
        self.limit: Final = per_minute
        self._level = float(per_minute)
        self._at_s = now_s

    def charge(self, amount: float, now_s: float) -> None:
        """Take an amount, there or not; a negative one is given back."""
        self._fill(now_s)
        self._level = min(self.limit, self._level - amount)

    def wait_s(self, amount: float, now_s: float) -> float:
        """Seconds until `amount` can be taken; 0: now."""
        self._fill(now_s)
        return self._seconds(min(amount, self.limit) - self._level)

    def remaining(self, now_s: float) -> int:
        """Whole units that can be taken now."""
        self._fill(now_s)
        return max(0, int(self._level))

    def reset_s(self, now_s: float) -> float:
        """Seconds until it is full."""
        self._fill(now_s)
        return self._seconds(self.limit - self._level)

    def resized(self, per_minute: int, now_s: float) -> "TokenBucket":
        """A bucket of another size that has lacked as much as this one."""
        other = TokenBucket(per_minute, now_s)
        self._fill(now_s)
        other._level = per_minute - (self.limit - self._level)
        return other

    def _seconds(self, amount: float) -> float:
        return max(0.0, amount * _PERIOD_S / self.limit)

    def _fill(self, now_s: float) -> None:
        passed_s = max(0.0, now_s - self._at_s)
        self._at_s = max(self._at_s, now_s)
        self._level = min(self.limit, self._level + passed_s * self.limit / _PERIOD_S)
