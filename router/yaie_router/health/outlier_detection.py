"""Passive health checks and a retry budget: an endpoint that fails requests gets none for a while.

    closed ──failures──▶ ejected (base·2ⁿ s) ──time──▶ half-open: one request ──success──▶ closed
                             ▲────────────────────────────failure──┘

A refused connection ejects at once; other failures count, and `THRESHOLD` in a row eject.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Final

THRESHOLD: Final = 3
BASE_S: Final = 1.0
LONGEST_S: Final = 30.0


@dataclass
class _Record:
    failures: int = 0
    ejections: int = 0
    until_s: float = 0.0
    probing: bool = False


class Health:
    """Ejection state by endpoint name. Endpoints without failures have no record."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._records: dict[str, _Record] = {}

    def ejected(self, names: Iterable[str]) -> set[str]:
        """Return those that must get no request now. If that would be all, return none: a try may
        succeed, a refusal cannot.
        """
        if not self._records:
            return set()
        asked = set(names)
        out = {name for name in asked if self._is_ejected(name)}
        return out if out != asked else set()

    def sent(self, name: str) -> None:
        """Note that a request goes to this endpoint. After an ejection it is the only probe."""
        record = self._records.get(name)
        if record is not None and record.ejections:
            record.probing = True

    def succeeded(self, name: str) -> None:
        self._records.pop(name, None)

    def failed(self, name: str, *, at_once: bool) -> bool:
        """Count a failure. Return whether it ejects the endpoint."""
        record = self._records.setdefault(name, _Record())
        record.failures += 1
        record.probing = False
        if not (at_once or record.ejections or record.failures >= THRESHOLD):
            return False
        pause_s = min(LONGEST_S, BASE_S * 2.0 ** min(record.ejections, 10))
        record.until_s = self._clock() + pause_s
        record.ejections += 1
        return True

    def abandoned(self, name: str) -> None:
        """Note that the request has shown nothing about the endpoint: allow another probe."""
        record = self._records.get(name)
        if record is not None:
            record.probing = False

    def retain(self, names: Collection[str]) -> None:
        """Forget endpoints that no longer exist."""
        for name in self._records.keys() - set(names):
            del self._records[name]

    def _is_ejected(self, name: str) -> bool:
        record = self._records.get(name)
        if record is None or not record.ejections:
            return False
        return record.probing or self._clock() < record.until_s


class RetryBudget:
    """Retries are at most `ratio` of requests, with a small reserve for quiet times."""

    def __init__(self, ratio: float = 0.2, reserve: float = 10.0, most: float = 100.0) -> None:
        self._ratio = ratio
        self._most = most
        self._tokens = reserve

    def deposit(self) -> None:
        """Add what one request contributes to the budget."""
        self._tokens = min(self._most, self._tokens + self._ratio)

    def withdraw(self) -> bool:
        """Take one retry. Return False if the budget is spent."""
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True
