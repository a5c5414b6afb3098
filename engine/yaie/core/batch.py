"""Messages from the scheduler to the model runner and back. Frozen, msgspec-serializable.

A `Batch` carries changes only. The runner keeps one device-resident slot per running sequence (last
token, block table, sampling parameters); a batch says which slots start, get pages, run, and are
released.
"""

from typing import Final

import msgspec

from yaie.core.messages import Pooling, TokenLogprobs
from yaie.core.request import SamplingParams


class SlotInit(msgspec.Struct, frozen=True, array_like=True):
    """A sequence starts in `slot`. `pages[g]`: its block table in KV cache group g so far.

    `stop_ids`: the ids that end the output, EOS included; `min_tokens` forbids them at first.
    `prompt_tokens`: length of the prompt; the token sampled at position p is output number p -
    prompt_tokens. `history`: (prompt ids, output ids so far), only if the sampling parameters
    depend on earlier tokens (penalties, bad words).
    """

    slot: int
    seq_id: int
    sampling: SamplingParams
    seed: int
    pages: tuple[tuple[int, ...], ...]
    stop_ids: tuple[int, ...] = ()
    prompt_tokens: int = 0
    history: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    pooling: Pooling | None = None


class PageAppend(msgspec.Struct, frozen=True, array_like=True):
    """Append `pages` to the block table of `slot` in KV cache group `group`."""

    slot: int
    group: int
    pages: tuple[int, ...]


class PageCopy(msgspec.Struct, frozen=True, array_like=True):
    """Copy one page of KV cache group `group` before the forward pass: within the device's pool or,
    in a swap, between the device's pool and the host's. `source` and `target` are page numbers in
    the pools that they belong to.
    """

    group: int
    source: int
    target: int


class Row(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """`n_tokens` tokens of one sequence, at positions start .. start + n_tokens - 1.

    `tokens`: their ids. Empty for a decode row, whose one token is the last token sampled in its
    slot: the device has that token, the host may not have it yet. `sample`: sample the token after
    the row's last position. Its RNG counter is its position, start + n_tokens. `epoch`: the
    sequence's epoch when the row was scheduled.

    `n_draft`: how many ids at the end of `tokens` are draft tokens. The row then also samples at
    the position of each draft token; the tokens after the first wrong draft token are dropped.

    `targets`: if prompt logprobs are requested, the ids that follow each of the row's positions
    (one fewer at the end of the prompt). `pool`: the sequence is pooled; the row with the prompt's
    last token produces the vector.
    """

    seq_id: int
    slot: int
    epoch: int
    start: int
    n_tokens: int
    tokens: tuple[int, ...]
    sample: bool
    targets: tuple[int, ...] = ()
    pool: bool = False
    n_draft: int = 0


class Batch(msgspec.Struct, frozen=True, array_like=True):
    """One step. Apply the fields in this order: releases, swap_out, swap_in, inits, appends,
    copies, then run the rows. A page that swap_out reads may be the target of a copy or row of the
    same batch.

    Decode rows (one token, no ids) come first, then the rows with ids: drafts and prefill chunks.
    """

    step_id: int
    releases: tuple[int, ...]
    inits: tuple[SlotInit, ...]
    appends: tuple[PageAppend, ...]
    copies: tuple[PageCopy, ...]
    rows: tuple[Row, ...]
    swap_out: tuple[PageCopy, ...] = ()
    swap_in: tuple[PageCopy, ...] = ()

    @property
    def n_tokens(self) -> int:
        """Number of tokens computed in this step."""
        return sum(row.n_tokens for row in self.rows)


FORBIDDEN: Final = -2
"""Replaces a sampled token if the request's own constraints forbid every token."""


class StepResult(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Results of a batch. Every field is aligned with the batch's rows.

    `tokens[i]`: the sampled id, -1 if the row does not sample, or FORBIDDEN. `finite[i]`: False if
    the row's logits hold NaN, +inf or only -inf; that sequence fails, the other sequences continue.

    The other fields are empty if no row needs them: `logprobs` of the sampled token,
    `prompt_logprobs` of the row's `targets`, the `pooled` vector (float32, little-endian bytes),
    and `more_tokens`, which a row with a draft has sampled after tokens[i]: one for each accepted
    draft token.
    """

    step_id: int
    tokens: tuple[int, ...]
    finite: tuple[bool, ...]
    logprobs: tuple[TokenLogprobs | None, ...] = ()
    prompt_logprobs: tuple[tuple[TokenLogprobs, ...] | None, ...] = ()
    pooled: tuple[bytes | None, ...] = ()
    more_tokens: tuple[tuple[int, ...], ...] = ()
