"""The interface of scheduling policies, and the policies with a fixed order.

A policy is a queue of waiting sequences that decides which sequence is served next. It does not see
pages, budgets or time; anything else that it needs is passed to its constructor.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

from yaie.core.queues.lazy_heap import LazyHeap
from yaie.core.sequence import Sequence, SequenceStatus


class WaitingQueue(Protocol):
    """The waiting queue as the scheduler uses it. Its sequences are WAITING; a sequence that has
    ended is never returned.
    """

    def push(self, sequence: Sequence) -> None:
        """Add a sequence that is new, was preempted or suspended, or no longer follows another."""

    def refresh(self, running: Iterable[Sequence]) -> None:
        """A round of admissions begins while the sequences in `running` run."""

    def peek(self) -> Sequence | None:
        """The next sequence to serve, if any; the same one until the queue changes."""

    def pop(self) -> None:
        """Remove the sequence that `peek` returned."""

    def started(self, sequence: Sequence) -> None:
        """A sequence that was popped has started to run."""

    def left(self, sequence: Sequence) -> None:
        """A running sequence was preempted or suspended, or has ended."""

    def discard(self, sequence: Sequence) -> None:
        """Remove a waiting sequence, which has ended."""


Order = Callable[[Sequence], tuple[int, ...]]


def fcfs(sequence: Sequence) -> tuple[int, ...]:
    """First come, first served. A preempted sequence keeps its place."""
    return (sequence.arrival, sequence.index)


def priority(sequence: Sequence) -> tuple[int, ...]:
    """Lower priority value first, then first come, first served. High values may starve."""
    return sequence.rank


class OrderedQueue:
    """Serves sequences in the order of a fixed sort key."""

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
        """Nothing to do: the order is fixed."""

    def started(self, sequence: Sequence) -> None:
        """Nothing to do: the order is fixed."""

    def left(self, sequence: Sequence) -> None:
        """Nothing to do: the order is fixed."""
