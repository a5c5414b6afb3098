"""Who is served next. A policy is a queue of waiting sequences that decides which one comes first.

Policies never see pages, budgets or time; what they may know besides is given to them.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

from yaie.core.queues.lazy_heap import LazyHeap
from yaie.core.sequence import Sequence, SequenceStatus


class WaitingQueue(Protocol):
    """What the scheduler asks. Sequences in it are WAITING; those that ended are never returned."""

    def push(self, sequence: Sequence) -> None:
        """A sequence waits: it is new, was preempted, or has stopped to follow another."""

    def refresh(self, running: Iterable[Sequence]) -> None:
        """A round of admissions begins, beside these sequences."""

    def peek(self) -> Sequence | None:
        """The next sequence to serve, if any; the same one until the queue changes."""

    def pop(self) -> None:
        """Remove what `peek` returned."""

    def started(self, sequence: Sequence) -> None:
        """What was popped runs."""

    def left(self, sequence: Sequence) -> None:
        """A sequence that ran was preempted or has ended."""

    def discard(self, sequence: Sequence) -> None:
        """A waiting sequence has ended."""


Order = Callable[[Sequence], tuple[int, ...]]


def fcfs(sequence: Sequence) -> tuple[int, ...]:
    """First come, first served. A preempted sequence keeps its place."""
    return (sequence.arrival, sequence.index)


def priority(sequence: Sequence) -> tuple[int, ...]:
    """A lower priority value first, then first come, first served. The unimportant may starve."""
    return sequence.rank


class OrderedQueue:
    """Serves in a fixed order."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._heap: LazyHeap[Sequence] = LazyHeap(lambda one: one.state is SequenceStatus.WAITING)

    def __len__(self) -> int:
        return len(self._heap)

    def push(self, sequence: Sequence) -> None:
        sequence.state = SequenceStatus.WAITING
        self._heap.push(self._order(sequence), sequence)

    def peek(self) -> Sequence | None:
        return self._heap.peek()

    def pop(self) -> None:
        self._heap.pop()

    def discard(self, sequence: Sequence) -> None:
        sequence.state = SequenceStatus.ENDED
        self._heap.lose()

    def refresh(self, running: Iterable[Sequence]) -> None:
        """The order is fixed."""

    def started(self, sequence: Sequence) -> None:
        """The order is fixed."""

    def left(self, sequence: Sequence) -> None:
        """The order is fixed."""
