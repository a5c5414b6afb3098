"""A compiled grammar, and the matcher of one output."""

from dataclasses import dataclass

from llguidance import LLMatcher


@dataclass(slots=True)
class CompiledGrammar:
    """A matcher at the start of its grammar, which is only copied. `size_bytes`: memory that it
    takes.

    All copies share one lexer: states that one copy has explored are fast for all, and when one
    copy exceeds a limit, all copies stop. Such a grammar is `exhausted` and must be compiled again.
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
        """Advance by a committed token. False: the grammar does not allow the token here.

        An end-of-sequence token is allowed where the grammar may end. A matcher that has exceeded a
        limit allows no token.
        """
        consumed: bool = self.matcher.try_consume_tokens([token_id]) == 1
        if self.matcher.is_error():
            self._grammar.exhausted = True
            return False
        return consumed

    @property
    def is_finished(self) -> bool:
        """Whether the output is complete: the grammar allows no further token."""
        return self.matcher.is_stopped() and not self.matcher.is_error()

    def fork(self) -> "TokenMatcher":
        """A matcher in the same state, for another output."""
        return TokenMatcher(self._grammar, self.matcher.deep_copy())
