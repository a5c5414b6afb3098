"""Samples token ids from logits, with a finite flag for each row. Works on device tensors only."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import torch

import yaie_kernels as ops
from yaie.core.batch import SlotInit
from yaie.runtime.sampling.logits_state import LogitsState
from yaie.runtime.sampling.logprobs import LogprobTensors, score
from yaie.runtime.sampling.metadata import NO_LOGPROBS, How, SamplingMetadata, SlotSampling
from yaie.runtime.tensors.device_slots import Slots
from yaie.runtime.tensors.inputs import Ints
from yaie.runtime.tensors.transfer import upload
from yaie_kernels import logit_flags


class SamplerOutput(NamedTuple):
    """Results of S draws: tokens [S] int64 and finite [S] bool. `forbidden` [S] bool: rows whose
    own request forbids every token; such a row is not finite. None: no constraints.
    """

    tokens: torch.Tensor
    finite: torch.Tensor
    forbidden: torch.Tensor | None = None


def draw(
    logits: torch.Tensor,
    slots: Slots,
    rows: torch.Tensor,
    positions: torch.Tensor,
    *,
    how: How,
    wanted: torch.Tensor | None = None,
) -> SamplerOutput:
    """Sample one token per row and store it as its slot's last token.

    A row with NaN, +inf or only -inf gets token 0 and finite False; the others are not affected.

    Args:
        logits: [S, vocab], any float dtype.
        slots: sampling parameters by slot; `last_token` is written.
        rows: [S] int64 slot of each row.
        positions: [S] int64 position of the sampled token: the RNG counter.
        how: the most general kind of sampling that a row needs.
        wanted: [S] flags of the changes made to the logits; None: no changes.

    """
    if how == "greedy":
        tokens, finite, peak = ops.greedy(logits)
    else:
        tokens, finite, peak = ops.sample(
            logits,
            slots.temperature,
            slots.top_k,
            slots.top_p,
            slots.min_p,
            slots.seed,
            positions,
            rows=rows,
            filtered=how == "filtered",
        )
    slots.last_token[rows] = tokens
    forbidden = None if wanted is None else (peak == -torch.inf) & (wanted != 0)
    return SamplerOutput(tokens, finite, forbidden)


class PendingDraw(NamedTuple):
    """Rows that are not sampled yet: logits [S, vocab], not modified; slots (`rows`) and positions
    [S] int64.
    """

    logits: torch.Tensor
    rows: torch.Tensor
    positions: torch.Tensor


class RowMasks(NamedTuple):
    """Grammar masks of R of the S draws: `rows` [R] their numbers, `words` [R, W] int32."""

    rows: Ints
    words: Ints


class Sampler:
    """Samples outside of captured steps, with all sampling parameters."""

    def __init__(self, slots: Slots, vocab_size: int, device: torch.device) -> None:
        rows = slots.scratch + 1
        self.slots = slots
        self.requested = SlotSampling(rows, vocab_size)
        self.state = LogitsState(rows, vocab_size, device)

    def start(self, inits: Iterable[SlotInit]) -> None:
        """Store the parameters and the state of sequences that start in slots."""
        inits = tuple(inits)
        self.requested.start(inits)
        self.state.start(inits)

    def draw(
        self, pending: PendingDraw, plan: SamplingMetadata, masks: RowMasks | None
    ) -> SamplerOutput:
        """Change the logits as `plan` and `masks` require, then sample."""
        logits, rows, positions = pending
        wanted = plan.wanted
        if masks is not None:
            self.state.allow(plan.slots[masks.rows], masks.words)
            wanted = wanted.copy()
            wanted[masks.rows] |= logit_flags.GRAMMAR
        if not wanted.any():
            return draw(logits, self.slots, rows, positions, how=plan.how)
        adjusted, bits = self.state.adjust(logits, rows, positions, wanted)
        drawn = draw(adjusted, self.slots, rows, positions, how=plan.how, wanted=bits)
        self.state.remember(drawn.tokens, rows, positions, bits)
        return drawn

    @staticmethod
    def scores(
        logits: torch.Tensor, tokens: torch.Tensor, plan: SamplingMetadata
    ) -> LogprobTensors | None:
        """Score the sampled tokens [S] of the rows that need it, in their order; None: there are
        none.
        """
        asking = np.flatnonzero(plan.logprobs != NO_LOGPROBS).astype(np.int32)
        if not len(asking):
            return None
        count = int(plan.logprobs.max())
        if len(asking) < len(tokens):
            (index,) = upload((asking,), logits.device)
            logits, tokens = logits[index.long()], tokens[index.long()]
        return score(logits, tokens, count)
