"""The `longest-prefix` policy: serves the sequence with the longest cached prefix first, before
that prefix is evicted.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable

from yaie.core.queues.policy import fcfs
from yaie.core.sequence import Sequence, SequenceStatus

WINDOW = 64
"""Only this many of the oldest sequences are looked up in a round, which bounds the cost of a step.
"""
PATIENCE = 16
"""The oldest sequence is overtaken at most this many times, then it is served. So no sequence
starves: one with n older ones before it is served after at most (n + 1) · (PATIENCE + 1) others.
"""


class LongestPrefixQueue:
    """`lookup`: returns how many leading tokens of a sequence are in the prefix cache."""

    def __init__(self, lookup: Callable[[Sequence], int]) -> None:
        self._lookup = lookup
        self._waiting: list[Sequence] = []
        self._ranked: list[Sequence] = []
        self._overtaken = 0

    def push(self, sequence: Sequence) -> None:
        sequence.state = SequenceStatus.WAITING
        insort(self._waiting, sequence, key=fcfs)

    def refresh(self, running: Iterable[Sequence]) -> None:  # noqa: ARG002 - part of the protocol
        """Look up the oldest sequences and sort them into `_ranked`, the longest prefix last."""
        window = self._waiting[:WINDOW]
        saved = {id(sequence): self._lookup(sequence) for sequence in window}
        window.reverse()
        self._ranked = sorted(window, key=lambda sequence: saved[id(sequence)])

    def peek(self) -> Sequence | None:
        if not self._waiting:
            return None
        if self._overtaken >= PATIENCE:
            return self._waiting[0]
        while self._ranked and self._ranked[-1].state is not SequenceStatus.WAITING:
            self._ranked.pop()
        return self._ranked[-1] if self._ranked else self._waiting[0]

    def pop(self) -> None:
        """Remove the next sequence.

        Raises:
            IndexError: no sequence waits.

        """
        sequence = self.peek()
        if sequence is None:
            raise IndexError("nobody waits")
        self._overtaken = 0 if sequence is self._waiting[0] else self._overtaken + 1
        self._remove(sequence)

    def discard(self, sequence: Sequence) -> None:
        if sequence is self._waiting[0]:
            self._overtaken = 0
        self._remove(sequence)
        sequence.state = SequenceStatus.ENDED

    def started(self, sequence: Sequence) -> None:
        """Nothing to do: only waiting sequences are ordered."""

    def left(self, sequence: Sequence) -> None:
        """Nothing to do: only waiting sequences are ordered."""

    def _remove(self, sequence: Sequence) -> None:
        del self._waiting[bisect_left(self._waiting, fcfs(sequence), key=fcfs)]
        if sequence in self._ranked:
            self._ranked.remove(sequence)
