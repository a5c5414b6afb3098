"""The interface of drafters, which guess the next tokens of a sequence for speculative decoding.

One step verifies all tokens of a draft (Leviathan et al., 2023, arXiv 2211.17192). The acceptance
rule is simpler than in the paper: a sampled token depends only on its logits, the request's seed
and the position, so a draft token is accepted if it equals the sampled token. The output is the
same with any drafter and with none.
"""

from collections.abc import Sequence
from typing import Protocol


class Drafter(Protocol):
    """The scheduler calls it for each decoding sequence whose tokens are all committed."""

    def draft(self, tokens: Sequence[int], most: int) -> Sequence[int]:
        """Guess up to `most` ids (at least 1) that follow `tokens`, all known ids of a sequence. An
        empty draft costs nothing.
        """
