"""The scheduler's interface to a grammar: a matcher follows one output, token by token.

`yaie.runtime.grammar` implements it with llguidance; the scheduler only feeds it committed tokens.
"""

from typing import Protocol


class Matcher(Protocol):
    """The state of one output in its grammar. A preempted sequence keeps its matcher."""

    def consume(self, token_id: int) -> bool:
        """Advance by a committed token. False: the grammar does not allow the token here."""

    @property
    def is_finished(self) -> bool:
        """Whether the output is complete: the grammar allows no further token."""

    def fork(self) -> "Matcher":
        """A matcher in the same state, for another output of the same request."""
