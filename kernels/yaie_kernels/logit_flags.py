"""Bits of the `wanted` arguments: the changes that a row of logits needs before its token is drawn.

The bits of the three masks come first: bit k means that mask table k applies.
"""

ALLOWED = 1
"""Allow only the tokens of the slot's mask 0."""
MIN_TOKENS = 2
"""Allow only the tokens of mask 1, which excludes the tokens that end an output."""
GRAMMAR = 4
"""Allow only the tokens of mask 2, which changes at every step."""
PENALTIES = 8
"""Penalise earlier tokens, and count drawn ones."""
BIASES = 16
"""Add the slot's biases to the logits of some tokens."""
BAD_WORDS = 32
"""Forbid tokens that would complete a banned sequence, and record drawn ones."""

MASKS = 3
WORD_TOKENS = 32
"""Length of the longest banned sequence, and the number of recent tokens kept per slot."""
ANY = -1
"""In a banned sequence: matches every token, and also the place before the first token."""
NONE = -2
"""Among recent tokens: no token; no banned token equals it."""
