"""Remembers which writes the API server refused, so that the same ones are not sent all the time.

A quota or a policy refuses for hours. The same writes are tried again after 10, 20, 40 … seconds
and at most every half hour: nine times in the first hour. Other writes are tried at once.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

FIRST_S: Final = 10.0
LONGEST_S: Final = 1800.0


@dataclass(frozen=True)
class Refusal:
    """The last refusal of a key's writes. `writes`: their hash; `times`: how often in a row."""

    writes: str
    message: str
    until: datetime
    times: int


class Refusals:
    """The last refusal of each key."""

    def __init__(self) -> None:
        self._of: dict[str, Refusal] = {}

    def pending(self, key: str, writes: str, now: datetime) -> Refusal | None:
        """The refusal because of which these writes must wait; None: send them."""
        known = self._of.get(key)
        waits = known is not None and known.writes == writes and now < known.until
        return known if waits else None

    def add(self, key: str, writes: str, message: str, now: datetime) -> Refusal:
        """Note that the writes were refused."""
        known = self._of.get(key)
        times = known.times + 1 if known is not None and known.writes == writes else 1
        wait_s = min(FIRST_S * 2 ** min(times - 1, 16), LONGEST_S)
        self._of[key] = Refusal(writes, message, now + timedelta(seconds=wait_s), times)
        return self._of[key]

    def message(self, key: str) -> str:
        """The API server's message when it last refused the key's writes, or ""."""
        known = self._of.get(key)
        return known.message if known is not None else ""

    def clear(self, key: str) -> None:
        """Note that the key's writes were accepted, or that it has none."""
        self._of.pop(key, None)

    def wait_s(self, key: str, now: datetime) -> float | None:
        """Seconds until the key's writes are tried again; None: none were refused."""
        known = self._of.get(key)
        return max((known.until - now).total_seconds(), 0.0) if known is not None else None
