"""Verifies drafts: draft tokens are accepted up to the first that was not sampled."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from yaie.core.batch import Row
from yaie.runtime.tensors.inputs import Ints
from yaie.runtime.tensors.transfer import upload

NO_GUESS = -1
"""Pads shorter drafts; no token equals it."""


class Drafts(NamedTuple):
    """The drafts of D rows with up to K draft tokens, for S draws of a step.

    Attributes:
        slots: [D] slot of each row.
        draws: [D, K + 1] column k: which of the S draws comes after k draft tokens; a shorter draft
            repeats its last one.
        guesses: [D, K] ids of the draft tokens, NO_GUESS where the draft is shorter.

    """

    slots: Ints
    draws: Ints
    guesses: Ints


def drafts_of(rows: Sequence[Row], sampled: Ints) -> Drafts:
    """Lay out the drafts of a step. `sampled`: [S] row number of each draw, ascending."""
    drafted = [number for number, row in enumerate(rows) if row.n_draft]
    most = max(rows[number].n_draft for number in drafted)
    first = np.searchsorted(sampled, drafted)
    lengths = np.array([rows[number].n_draft for number in drafted])
    steps = np.minimum(np.arange(most + 1), lengths[:, None])
    guesses = np.full((len(drafted), most), NO_GUESS, dtype=np.int32)
    for at, number in enumerate(drafted):
        row = rows[number]
        guesses[at, : row.n_draft] = row.tokens[-row.n_draft :]
    slots = np.array([rows[number].slot for number in drafted], dtype=np.int32)
    return Drafts(slots, (first[:, None] + steps).astype(np.int32), guesses)


def last_tokens(drafts: Drafts, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The last token that each row gets: the draw after its last accepted draft token.

    Args:
        drafts: of the step.
        tokens: [S] int64 the sampled tokens.

    Returns:
        [D] int64 slots, [D] int64 tokens.

    """
    parts = upload((drafts.slots, drafts.draws.ravel(), drafts.guesses.ravel()), tokens.device)
    slots, draws, guesses = (part.long() for part in parts)
    drawn = tokens[draws.view(drafts.draws.shape)]
    right = drawn[:, :-1] == guesses.view(drafts.guesses.shape)
    n_right = right.long().cumprod(1).sum(1, keepdim=True)
    return slots, drawn.gather(1, n_right).squeeze(1)


def count_right(row: Row, tokens: Sequence[int]) -> int:
    """Number of accepted draft tokens of a row, given its draws [n_draft + 1] on the host."""
    guesses = row.tokens[-row.n_draft :]
    pairs = enumerate(zip(guesses, tokens, strict=False))
    return next((at for at, (guess, token) in pairs if guess != token), row.n_draft)
