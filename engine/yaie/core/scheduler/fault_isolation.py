"""Finds the request that makes a step fail, so that only that request ends.

An error in a step does not say which of its sequences caused it. All of them are suspended and run
again, apart from all others: one half in a step, then the other half. A half that fails is halved
again; a sequence that fails alone is the culprit. A suspect is cleared once it has been computed as
far as the failed step would have brought it. With one culprit among n sequences that takes about
`2 log2(n)` steps.

If no sequence fails alone, the error has passed, or it came from what the sequences need together.
That is an unexplained failure; a sequence that was in too many of them ends at the next one.
"""

from collections.abc import Callable
from typing import NamedTuple

from yaie.core.sequence import Sequence, SequenceStatus

MAX_UNEXPLAINED = 8
"""How often the same sequences are tried: without a bound, a step that always fails, but whose
halves never do, would be repeated for ever.
"""


class Suspect(NamedTuple):
    """A sequence of a failed step, and the position up to which it must be computed again."""

    sequence: Sequence
    until: int

    @property
    def is_suspect(self) -> bool:
        """Whether it is still to be heard. One that left in another way has been."""
        sequence = self.sequence
        if sequence.state is SequenceStatus.RUNNING:
            return sequence.committed < self.until
        return sequence.state is SequenceStatus.SUSPENDED

    @property
    def is_hopeless(self) -> bool:
        return self.sequence.unexplained >= MAX_UNEXPLAINED


class FaultIsolator:
    """One case at a time, true while it is open: the suspects, in groups that are tried one after
    another, the last one next. What the sequences do is the scheduler's.
    """

    def __init__(self) -> None:
        self._groups: list[list[Suspect]] = []
        self._involved: set[Sequence] = set()
        self._solved = False

    def __bool__(self) -> bool:
        return bool(self._involved)

    def next_group(self) -> list[Sequence]:
        """Suspects of the next bisect step. Empty: each has been tried, so the failure is settled:
        either culprits explain it, or it counts as unexplained for every sequence that was in it.
        """
        self._clear(lambda suspect: suspect.is_suspect)
        if self._groups:
            return [suspect.sequence for suspect in self._groups[-1]]
        for sequence in self._involved:
            sequence.unexplained += not self._solved
        self._involved, self._solved = set(), False
        return []

    def record(self, failed: list[Suspect], *, alone: bool) -> set[Sequence]:
        """A step failed; `failed` are those of its sequences that still run. Return the ones that
        must end; the caller suspends the others. `alone`: the step held one sequence only.
        """
        culprits = {one.sequence for one in failed if alone or one.is_hopeless}
        left = [one for one in failed if one.sequence not in culprits]
        sequences = {one.sequence for one in failed}
        self._clear(lambda suspect: suspect.sequence not in sequences)
        half = (len(left) + 1) // 2
        self._groups += [group for group in (left[half:], left[:half]) if group]
        self._involved |= sequences
        self._solved = self._solved or bool(culprits)
        return culprits

    def postpone(self) -> list[Sequence]:
        """The next group cannot be tried now: its suspended sequences wait in the queue again."""
        group = self._groups.pop()
        return [one.sequence for one in group if one.sequence.state is SequenceStatus.SUSPENDED]

    def check(self, suspended: list[Sequence]) -> None:
        """Prove that every suspended sequence will be tried; raises AssertionError."""
        suspects = {suspect.sequence for group in self._groups for suspect in group}
        if not suspects.issuperset(suspended):
            raise AssertionError("a suspended sequence waits for no bisect step")

    def _clear(self, stays: Callable[[Suspect], bool]) -> None:
        groups = ([one for one in group if stays(one)] for group in self._groups)
        self._groups = [group for group in groups if group]
