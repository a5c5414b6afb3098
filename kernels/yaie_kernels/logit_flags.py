"""What a row of logits needs before its token is drawn: bits of the `wanted` arguments.

The three kinds of mask come first: bit k says that mask table k applies.
"""

ALLOWED = 1
"""Only the tokens of the slot's mask 0."""
MIN_TOKENS = 2
"""Only the tokens of mask 1: the ending tokens are not among them."""
GRAMMAR = 4
"""Only the tokens of mask 2, which changes from step to step."""
PENALTIES = 8
"""Tokens of the past are penalised, and drawn ones counted."""
BIASES = 16
"""Numbers are added to some logits."""
BAD_WORDS = 32
"""Sequences of tokens must not come about, and drawn ones are remembered."""

MASKS = 3
WORD_TOKENS = 32
"""Longest banned sequence; as many last tokens of a slot are remembered."""
ANY = -1
"""In a banned sequence: matches every token, also one before the first."""
NONE = -2
"""Among remembered tokens: there was none, no banned token equals it."""
