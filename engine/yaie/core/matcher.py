"""What the scheduler knows of a grammar: a matcher that follows one output, token by token.

The real one is llguidance behind `yaie.runtime.grammar`; the core only feeds it committed tokens.
"""

from typing import Protocol


class Matcher(Protocol):
    """State of one output in its grammar. A preempted sequence keeps its matcher."""

    def consume(self, token_id: int) -> bool:
        """Take a committed token. False: the grammar does not allow it here."""

    @property
    def is_finished(self) -> bool:
        """Nothing can follow: the output is complete."""

    def fork(self) -> "Matcher":
        """A matcher in the same state, for another output of the same request."""
