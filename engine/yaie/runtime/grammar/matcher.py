"""A compiled grammar, and what follows one output through it."""

from dataclasses import dataclass

from llguidance import LLMatcher


@dataclass(slots=True)
class CompiledGrammar:
    """A matcher at its grammar's beginning, never fed itself. `size_bytes`: what it holds.

    Copies have one lexer in common: what one of them has explored is fast for all, and a limit that
    one runs into ends them all. Such a grammar is `exhausted` and has to be compiled anew.
    """

    matcher: LLMatcher
    size_bytes: int
    exhausted: bool = False

    def begin(self) -> "TokenMatcher":
        """A matcher for one output."""
        return TokenMatcher(self, self.matcher.deep_copy())


class TokenMatcher:
    """Follows one output through its grammar."""

    __slots__ = ("_grammar", "matcher")

    def __init__(self, grammar: CompiledGrammar, matcher: LLMatcher) -> None:
        self._grammar = grammar
        self.matcher = matcher

    def consume(self, token_id: int) -> bool:
        """Take a committed token; False when the grammar does not allow it here.

        An end-of-sequence token is allowed where the grammar may end. A matcher that ran into a
        limit takes nothing more.
        """
        consumed: bool = self.matcher.try_consume_tokens([token_id]) == 1
        if self.matcher.is_error():
            self._grammar.exhausted = True
            return False
        return consumed

    @property
    def is_finished(self) -> bool:
        """Nothing can follow: the output is complete."""
        return self.matcher.is_stopped() and not self.matcher.is_error()

    def fork(self) -> "TokenMatcher":
        """A matcher in the same state, for another output."""
        return TokenMatcher(self._grammar, self.matcher.deep_copy())
