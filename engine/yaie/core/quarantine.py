"""Finds out whose fault a failed step was, so that nobody else has to end for it.

An error in a step does not say which of its sequences caused it. All of them are suspended, and run
again apart from all others: half of them in one step, then the other half. A half that fails is
halved again; a sequence that fails alone is guilty. A suspect is cleared once it has been computed
as far as it was to get in the step that failed. That takes about `2 log2(n)` steps for one guilty
sequence among n.

Where nobody fails alone, the error has passed or came from what the sequences need together; that
is an unexplained failure, and a sequence that was in too many of them is ended at the next.
"""

from collections.abc import Callable
from typing import NamedTuple

from yaie.core.sequence import Sequence, State

MAX_UNEXPLAINED = 8
"""A bound on how often the same company is tried: without it, a step that always fails and whose
halves never do would be repeated for ever.
"""


class Accused(NamedTuple):
    """A sequence of a failed step, and the position up to which it must be computed again."""

    sequence: Sequence
    until: int

    @property
    def is_suspect(self) -> bool:
        """Whether it is still to be heard. One that left in another way has been."""
        sequence = self.sequence
        if sequence.state is State.RUNNING:
            return sequence.committed < self.until
        return sequence.state is State.SUSPENDED

    @property
    def is_hopeless(self) -> bool:
        return self.sequence.unexplained >= MAX_UNEXPLAINED


class Quarantine:
    """One case at a time, true while it is open: the suspects, in groups that are tried one after
    another, the last one next. What the sequences do is the scheduler's.
    """

    def __init__(self) -> None:
        self._groups: list[list[Accused]] = []
        self._case: set[Sequence] = set()
        self._solved = False

    def __bool__(self) -> bool:
        return bool(self._case)

    def next_group(self) -> list[Sequence]:
        """Who is to be tried next, apart from all others. Empty: all were heard, which closes the
        case. The guilty explain it, or else it counts for everybody who was in it.
        """
        self._clear(lambda accused: accused.is_suspect)
        if self._groups:
            return [accused.sequence for accused in self._groups[-1]]
        for sequence in self._case:
            sequence.unexplained += not self._solved
        self._case, self._solved = set(), False
        return []

    def accuse(self, failed: list[Accused], *, alone: bool) -> set[Sequence]:
        """A step failed; `failed` of its sequences still run. Returns who must end; the others are
        to be suspended. `alone`: it held one sequence only.
        """
        guilty = {one.sequence for one in failed if alone or one.is_hopeless}
        left = [one for one in failed if one.sequence not in guilty]
        sequences = {one.sequence for one in failed}
        self._clear(lambda accused: accused.sequence not in sequences)
        half = (len(left) + 1) // 2
        self._groups += [group for group in (left[half:], left[:half]) if group]
        self._case |= sequences
        self._solved = self._solved or bool(guilty)
        return guilty

    def dismiss(self) -> list[Sequence]:
        """The next group cannot be tried now: its suspended sequences wait in the queue again."""
        group = self._groups.pop()
        return [one.sequence for one in group if one.sequence.state is State.SUSPENDED]

    def check(self, suspended: list[Sequence]) -> None:
        """Prove that every suspended sequence will be tried; raises AssertionError."""
        suspects = {accused.sequence for group in self._groups for accused in group}
        if not suspects.issuperset(suspended):
            raise AssertionError("a suspended sequence waits for no trial")

    def _clear(self, stays: Callable[[Accused], bool]) -> None:
        groups = ([one for one in group if stays(one)] for group in self._groups)
        self._groups = [group for group in groups if group]
