"""The policy that serves what is cached most first, so that prefixes are used before they go."""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable

from yaie.core.queues.policy import fcfs
from yaie.core.sequence import Sequence, SequenceStatus

WINDOW = 64
"""Only this many of the oldest are looked up in a round: the cost of a step stays bounded."""
PATIENCE = 16
"""The oldest is overtaken this many times; then it is its turn. So nobody starves: whoever has n
before it is served after (n + 1) · (PATIENCE + 1) others at the latest.
"""


class LongestPrefixQueue:
    """`lookup`: tokens of a sequence that the prefix cache has."""

    def __init__(self, lookup: Callable[[Sequence], int]) -> None:
        self._lookup = lookup
        self._waiting: list[Sequence] = []
        self._ranked: list[Sequence] = []
        self._overtaken = 0

    def push(self, sequence: Sequence) -> None:
        sequence.state = SequenceStatus.WAITING
        insort(self._waiting, sequence, key=fcfs)

    def refresh(self, running: Iterable[Sequence]) -> None:  # noqa: ARG002 - part of the protocol
        """Look the oldest up; the best is last in `_ranked`."""
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
        """Take out the sequence that is next.

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
        """The order is of those that wait."""

    def left(self, sequence: Sequence) -> None:
        """The order is of those that wait."""

    def _remove(self, sequence: Sequence) -> None:
        del self._waiting[bisect_left(self._waiting, fcfs(sequence), key=fcfs)]
        if sequence in self._ranked:
            self._ranked.remove(sequence)
