"""A heap that removes stale items lazily."""

import heapq
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class LazyHeap(Generic[T]):
    """Smallest key first. An item is stale if `is_current` is False. Stale items are removed when
    they reach the top, or all together when they are the majority: otherwise the heap would grow
    below a top item that stays.
    """

    def __init__(self, is_current: Callable[[T], bool]) -> None:
        self._is_current = is_current
        self._heap: list[tuple[Any, int, T]] = []
        self._serial = 0
        self._stale = 0

    def __len__(self) -> int:
        return len(self._heap)

    def push(self, key: tuple[float, ...], item: T) -> None:
        self._serial += 1
        heapq.heappush(self._heap, (key, self._serial, item))

    def peek(self) -> T | None:
        """The item with the smallest key, if any."""
        while self._heap and not self._is_current(self._heap[0][2]):
            heapq.heappop(self._heap)
            self._stale -= 1
        return self._heap[0][2] if self._heap else None

    def pop(self) -> None:
        """Remove what `peek` returned."""
        heapq.heappop(self._heap)

    def lose(self) -> None:
        """Count an item of the heap that has just become stale."""
        self._stale += 1
        if 2 * self._stale > len(self._heap):
            self._heap = [entry for entry in self._heap if self._is_current(entry[2])]
            heapq.heapify(self._heap)
            self._stale = 0
