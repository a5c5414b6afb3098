"""From logits to token ids, with a finite flag for each row. Works on device tensors only."""

from typing import NamedTuple

import torch

import yaie_kernels as ops
from yaie.runtime.slots import Slots


class Draw(NamedTuple):
    """Outcome of sampling S rows: tokens [S] int64 and finite [S] bool."""

    tokens: torch.Tensor
    finite: torch.Tensor


def draw(
    logits: torch.Tensor, slots: Slots, rows: torch.Tensor, positions: torch.Tensor, *, greedy: bool
) -> Draw:
    """Sample one token per row and remember it as the slot's last.

    Args:
        logits: [S, vocab], any float dtype.
        slots: sampling parameters by slot; `last_token` is written.
        rows: [S] int64 slot of each row.
        positions: [S] int64 position of the drawn token: the RNG counter.
        greedy: every row takes its most likely token (temperature 0).

    A row with NaN, +inf or only -inf gets token 0 and finite False; the others are not affected.

    """
    best, tokens = logits.max(dim=-1)
    finite = best.isfinite()
    if not greedy:
        tokens = ops.sample(
            logits,
            slots.temperature[rows],
            slots.top_k[rows],
            slots.top_p[rows],
            slots.min_p[rows],
            slots.seed[rows],
            positions,
        )
    tokens = tokens * finite
    slots.last_token[rows] = tokens
    return Draw(tokens, finite)
