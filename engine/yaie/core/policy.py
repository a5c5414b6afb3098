"""Who is served next. A policy maps a waiting sequence to its place; the smallest goes first.

Policies only order the waiting queue: they never see pages, budgets or time.
"""

import heapq
from collections.abc import Callable

from yaie.core.sequence import Sequence, State

Policy = Callable[[Sequence], tuple[int, ...]]


def fcfs(sequence: Sequence) -> tuple[int, ...]:
    """First come, first served. A preempted sequence keeps its place."""
    return (sequence.arrival,)


class WaitingQueue:
    """A heap in policy order. Sequences that left the WAITING state are skipped, not searched."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._heap: list[tuple[tuple[int, ...], int, Sequence]] = []
        self._gone = 0

    def push(self, sequence: Sequence) -> None:
        sequence.state = State.WAITING
        heapq.heappush(self._heap, (self._policy(sequence), sequence.seq_id, sequence))

    def peek(self) -> Sequence | None:
        """The next sequence to serve, if any."""
        while self._heap and self._heap[0][2].state is not State.WAITING:
            heapq.heappop(self._heap)
            self._gone -= 1
        return self._heap[0][2] if self._heap else None

    def pop(self) -> None:
        """Remove what `peek` returned."""
        heapq.heappop(self._heap)

    def discard(self, sequence: Sequence, state: State) -> None:
        """A waiting sequence leaves for `state`; its entry is dropped when it surfaces or when
        such entries are the majority, so that a stuck head cannot make the heap grow.
        """
        sequence.state = state
        self._gone += 1
        if 2 * self._gone > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].state is State.WAITING]
            heapq.heapify(self._heap)
            self._gone = 0
