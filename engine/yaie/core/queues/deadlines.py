"""Finds the requests whose deadline has passed. The caller provides the time."""

from collections.abc import Iterator

from yaie.core.group import SequenceGroup
from yaie.core.queues.lazy_heap import LazyHeap


class Deadlines:
    """Requests that have a deadline, the earliest first."""

    def __init__(self) -> None:
        self._heap: LazyHeap[SequenceGroup] = LazyHeap(lambda group: not group.ended)

    def push(self, group: SequenceGroup) -> None:
        if group.deadline_s is not None:
            self._heap.push((group.deadline_s, group.arrival), group)

    def discard(self, group: SequenceGroup) -> None:
        """Remove `group`, which has ended."""
        if group.deadline_s is not None:
            self._heap.lose()

    def expired(self, now: float) -> Iterator[SequenceGroup]:
        """Requests whose deadline is not after `now`. The caller must end each before it takes the
        next.
        """
        while (group := self._heap.peek()) is not None:
            if group.deadline_s is None or group.deadline_s > now:
                return
            yield group
