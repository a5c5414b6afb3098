"""Who is next when there are more requests than engines can run: start-time fair queueing. Pure.

Each tenant has a clock of its own that advances by tokens / weight with each of its requests; the
tenant whose clock is furthest behind is next. A tenant that comes (again) begins at the present, so
that nobody saves up a right to be served alone.
"""

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


@dataclass
class _Line(Generic[T]):
    """One tenant's requests, oldest first, with their costs. `clock`: of its next request."""

    clock: float
    weight: float
    waiting: deque[tuple[T, float]] = field(default_factory=deque)


class QueueFullError(Exception):
    """The queue is full, and no tenant has a larger part of it."""


class FairQueue(Generic[T]):
    """At most `most` requests wait. When it is full, a tenant with a small part of it displaces the
    newest request of the one with the largest.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._now = 0.0
        self._lines: dict[str, _Line[T]] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def depth(self, tenant: str) -> int:
        """How many requests of a tenant wait."""
        line = self._lines.get(tenant)
        return len(line.waiting) if line else 0

    def push(self, tenant: str, weight: float, cost: float, item: T) -> T | None:
        """Let a request wait. Returns the one that it displaces, if any.

        Raises:
            QueueFullError: there is no room for this tenant.

        """
        displaced = self._make_room(tenant, weight) if self._size >= self._most else None
        self._line(tenant, weight).waiting.append((item, cost))
        self._size += 1
        return displaced

    def pop(self) -> T | None:
        """Take the next request out; None: nothing waits."""
        waiting = [line for line in self._lines.values() if line.waiting]
        if not waiting:
            return None
        line = min(waiting, key=lambda one: one.clock)
        item, cost = line.waiting.popleft()
        self._size -= 1
        self._advance(line, cost)
        return item

    def passed(self, tenant: str, weight: float, cost: float) -> None:
        """Count a request that did not have to wait, because nothing did."""
        self._advance(self._line(tenant, weight), cost)

    def remove(self, tenant: str, item: T) -> bool:
        """Take out a request that waits no longer. Whether it was there."""
        line = self._lines.get(tenant)
        for index, (one, _) in enumerate(line.waiting if line else ()):
            if one == item and line is not None:
                del line.waiting[index]
                self._size -= 1
                return True
        return False

    def correct(self, tenant: str, tokens: float) -> None:
        """Count tokens that a request took more than its cost, or less."""
        line = self._lines.get(tenant)
        if line is not None:
            line.clock = max(self._now, line.clock + tokens / line.weight)

    def forget(self) -> None:
        """Begin anew, when nothing waits and nothing runs: there is nobody to be fair to."""
        self._lines.clear()
        self._now = 0.0

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        lines = self._lines.values()
        if not self._size == sum(len(line.waiting) for line in lines) <= self._most:
            raise AssertionError("the size is not what waits")
        if not all(line.clock >= self._now for line in lines if line.waiting):
            raise AssertionError("a tenant waits in the past")

    def _line(self, tenant: str, weight: float) -> _Line[T]:
        line = self._lines.setdefault(tenant, _Line(self._now, weight))
        line.weight = weight
        if not line.waiting:
            line.clock = max(line.clock, self._now)
        return line

    def _advance(self, line: _Line[T], cost: float) -> None:
        self._now = line.clock
        line.clock += cost / line.weight

    def _make_room(self, tenant: str, weight: float) -> T:
        name, largest = max(self._lines.items(), key=lambda one: _share(one[1]))
        if name == tenant or _share(largest) <= (self.depth(tenant) + 1) / weight:
            raise QueueFullError
        item, _ = largest.waiting.pop()
        self._size -= 1
        return item


def _share(line: _Line[T]) -> float:
    return len(line.waiting) / line.weight
