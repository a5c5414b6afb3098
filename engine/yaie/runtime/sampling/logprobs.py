"""Log-probabilities of tokens, from the model's logits before sampling changes them.

Log-softmax in float32, in pieces of bounded memory: the logits of a long prompt never exist all at
once. Equal logits are ranked by token id, so that lists are the same on every device.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch

import yaie_kernels as ops
from yaie.core.messages import TokenLogprobs
from yaie.runtime.tensors.transfer import Downloads

PIECE_BYTES = 2**26
"""Size of the float32 logits that are scored together; a few times as much memory is in use."""


class LogprobTensors(NamedTuple):
    """Of N tokens: `chosen` [N] float32 log-probabilities, `rank` [N] int64 from 1, and the K most
    likely tokens of each position, best first: `top_ids` [N, K] int64, `top` [N, K] float32.
    """

    chosen: torch.Tensor
    rank: torch.Tensor
    top_ids: torch.Tensor
    top: torch.Tensor

    def download(self, downloads: Downloads) -> "LogprobTensors":
        """Start the copies to the host."""
        return LogprobTensors(*(downloads.start(part) for part in self))

    def tokens(self, ids: list[int], counts: list[int]) -> list[TokenLogprobs]:
        """Convert to messages: token `ids[i]`, with the first `counts[i]` of its most likely
        tokens.
        """
        return [
            TokenLogprobs(token, chosen, rank, tuple(top_ids[:count]), tuple(top[:count]))
            for token, count, chosen, rank, top_ids, top in zip(
                ids, counts, *(part.tolist() for part in self), strict=True
            )
        ]


def score(logits: torch.Tensor, tokens: torch.Tensor, count: int) -> LogprobTensors:
    """Score tokens [N] under logits [N, vocab] of any float dtype, `count` most likely ones each.

    A row with NaN has log-probabilities NaN.
    """
    return score_pieces(lambda first, last: logits[first:last], tokens, count, logits.shape[1])


def score_pieces(
    logits: Callable[[int, int], torch.Tensor], tokens: torch.Tensor, count: int, vocab_size: int
) -> LogprobTensors:
    """Score tokens [N]. `logits(first, last)` computes rows first .. last - 1 on demand."""
    size = max(1, PIECE_BYTES // (4 * vocab_size))
    pieces = [
        LogprobTensors(
            *ops.score_tokens(
                logits(first, min(first + size, len(tokens))), tokens[first : first + size], count
            )
        )
        for first in range(0, len(tokens), size)
    ]
    return (
        pieces[0]
        if len(pieces) == 1
        else LogprobTensors(*map(torch.cat, zip(*pieces, strict=True)))
    )
