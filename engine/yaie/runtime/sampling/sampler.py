"""From logits to token ids, with a finite flag for each row. Works on device tensors only."""

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
    """Outcome of sampling S rows: tokens [S] int64 and finite [S] bool. `forbidden` [S] bool: of
    the rows that are not finite, those to which their own request left no token.
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
    """Sample one token per row and remember it as the slot's last.

    Args:
        logits: [S, vocab], any float dtype.
        slots: sampling parameters by slot; `last_token` is written.
        rows: [S] int64 slot of each row.
        positions: [S] int64 position of the drawn token: the RNG counter.
        how: what the most demanding row does.
        wanted: [S] bits of what has changed the logits; None: nothing has.

    A row with NaN, +inf or only -inf gets token 0 and finite False; the others are not affected.

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
    """Rows that wait for their draw: logits [S, vocab], left as they are, slots and positions [S]
    int64.
    """

    logits: torch.Tensor
    rows: torch.Tensor
    positions: torch.Tensor


class RowMasks(NamedTuple):
    """Grammar masks of some of the rows that are drawn: `rows` [R] among the S, `words` [R, W]."""

    rows: Ints
    words: Ints


class Sampler:
    """Draws the rows whose logits are at hand outside a captured step, with all they wish."""

    def __init__(self, slots: Slots, vocab_size: int, device: torch.device) -> None:
        rows = slots.scratch + 1
        self.slots = slots
        self.requested = SlotSampling(rows, vocab_size)
        self.state = LogitsState(rows, vocab_size, device)

    def start(self, inits: Iterable[SlotInit]) -> None:
        """Sequences enter slots."""
        inits = tuple(inits)
        self.requested.start(inits)
        self.state.start(inits)

    def draw(
        self, pending: PendingDraw, plan: SamplingMetadata, masks: RowMasks | None
    ) -> SamplerOutput:
        """Like `draw`, after what the plan and the masks change in the logits."""
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
        """Score the drawn tokens [S] of the rows that asked for it, in their order."""
        asking = np.flatnonzero(plan.logprobs != NO_LOGPROBS).astype(np.int32)
        if not len(asking):
            return None
        count = int(plan.logprobs.max())
        if len(asking) < len(tokens):
            (index,) = upload((asking,), logits.device)
            logits, tokens = logits[index.long()], tokens[index.long()]
        return score(logits, tokens, count)
