"""What guesses the next tokens of a sequence, so that one step can check several of them.

Speculative decoding (Leviathan et al., 2023, arXiv 2211.17192), with a simpler rule than theirs:
the draw of a position depends on its logits, the request's seed and the position alone, so a guess
is right where it is the token that is drawn. Outputs are the same with any drafter and with none.
"""

from collections.abc import Sequence
from typing import Protocol


class Drafter(Protocol):
    """The scheduler asks it for each sequence that decodes, when all its tokens are known."""

    def draft(self, tokens: Sequence[int], most: int) -> Sequence[int]:
        """Guess up to `most` ids (at least 1) that follow `tokens`, the known ids of a sequence;
        an empty draft costs nothing.
        """
