"""Finds the request that makes a step fail, so that only that request ends.

An error in a step does not tell which of its sequences caused it. All of them are suspended and run
again without other sequences: first one half in a step, then the other half. A half that fails is
halved again; a sequence that fails alone is the culprit. A suspect is cleared once it has been
computed as far as the failed step would have computed it. With one culprit among n sequences this
takes about `2 log2(n)` steps.

If no sequence fails alone, the error was transient, or only the sequences together cause it. Such a
failure is unexplained; a sequence that had `MAX_UNEXPLAINED` of them ends at its next failure.
"""

from collections.abc import Callable
from typing import NamedTuple

from yaie.core.sequence import Sequence, SequenceStatus

MAX_UNEXPLAINED = 8
"""Unexplained failures that a sequence may have. Without a bound, a step that always fails, but
whose halves never fail, would be repeated forever.
"""


class Suspect(NamedTuple):
    """A sequence of a failed step, and the position up to which it must be computed again."""

    sequence: Sequence
    until: int

    @property
    def is_suspect(self) -> bool:
        """Whether the sequence still has to be tried. A sequence that was queued again or has ended
        is no suspect any more.
        """
        sequence = self.sequence
        if sequence.state is SequenceStatus.RUNNING:
            return sequence.committed < self.until
        return sequence.state is SequenceStatus.SUSPENDED

    @property
    def is_hopeless(self) -> bool:
        return self.sequence.unexplained >= MAX_UNEXPLAINED


class FaultIsolator:
    """The suspects of the current investigation, in groups of which the last one is tried next.
    True while an investigation is open. The scheduler suspends, runs and ends the sequences.
    """

    def __init__(self) -> None:
        self._groups: list[list[Suspect]] = []
        self._involved: set[Sequence] = set()
        self._solved = False

    def __bool__(self) -> bool:
        return bool(self._involved)

    def next_group(self) -> list[Sequence]:
        """Sequences of the next bisect step. Empty: all suspects have been tried, and the
        investigation is closed. If it found no culprit, the failure counts as unexplained for every
        sequence that was involved.
        """
        self._clear(lambda suspect: suspect.is_suspect)
        if self._groups:
            return [suspect.sequence for suspect in self._groups[-1]]
        for sequence in self._involved:
            sequence.unexplained += not self._solved
        self._involved, self._solved = set(), False
        return []

    def record(self, failed: list[Suspect], *, alone: bool) -> set[Sequence]:
        """Record a failed step. `failed`: its sequences that still run. `alone`: the step had one
        sequence only. Returns the sequences that must end; the caller suspends the others.
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
        """Drop the next group, which cannot run now. Returns its suspended sequences, which the
        caller puts back into the queue.
        """
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
