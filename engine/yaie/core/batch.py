"""What the scheduler tells the model runner, and what comes back. Frozen, msgspec-serializable.

A `Batch` carries changes only: the runner keeps one device-resident slot per running sequence (its
last token, block tables, sampling parameters), and a batch says which slots start, grow, run, end.
Every rank receives the same Batch.
"""

from typing import Final

import msgspec

from yaie.core.messages import Pooling, TokenLogprobs
from yaie.core.request import SamplingParams


class SlotInit(msgspec.Struct, frozen=True, array_like=True):
    """A sequence enters `slot`. `pages[g]` is its block table in layer group g so far.

    `stop_ids`: the ids that min_tokens forbids, EOS included. `prompt_tokens`: the prompt's length;
    a drawn token at position p is output number p - prompt_tokens. `history`: (prompt ids, output
    ids so far), only where the sampling parameters look at the past (penalties, bad words).
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
    """`pages` are appended to the block table of `slot` in layer group `group`."""

    slot: int
    group: int
    pages: tuple[int, ...]


class PageCopy(msgspec.Struct, frozen=True, array_like=True):
    """Copy one page of layer group `group` before the forward pass: inside the device's pool, or
    between it and the host's pool in a swap (`source` and `target` name pages of either).
    """

    group: int
    source: int
    target: int


class Row(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """`n_tokens` tokens of one sequence, at positions start .. start + n_tokens - 1.

    `tokens` holds their ids. It is empty when the one token to run is the slot's last sampled
    token, which may still be in flight and never needs to visit the host.
    `sample`: sample the token that follows the row's last position (the RNG counter of that draw is
    that position, start + n_tokens). `epoch` is the sequence's epoch when the row was scheduled.
    `n_draft`: so many of the last ids are a draft, guesses of what follows the others. The row then
    samples before each of them, too, and the tokens after the first wrong guess do not count.
    `targets`: where prompt log-probabilities are wanted, the ids that follow each of the row's
    positions (one fewer at the prompt's end). `pool`: the row's sequence is pooled; the vector is
    due with the row that holds the prompt's last token.
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
    """One step. Apply in this order: releases, swap_out, swap_in, inits, appends, copies, then run
    rows. A page that swap_out reads may be the target of a copy or row of the same batch.

    Rows that decode (one token, no ids given) come first, prefill chunks after them.
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
        """Tokens computed in this step."""
        return sum(row.n_tokens for row in self.rows)


FORBIDDEN: Final = -2
"""In place of a sampled token."""


class StepResult(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Outcome of a batch, aligned with its rows.

    tokens[i] is the sampled id, or -1 where the row did not sample. finite[i] is False when the
    row's logits held NaN or only -inf: that sequence fails, the rest of the batch goes on. Its
    token is FORBIDDEN then where the sequence's own request forbids every token.
    The other fields are empty when no row asked for them, and aligned with the rows otherwise:
    `logprobs` of the sampled token, `prompt_logprobs` of the row's `targets`, the `pooled` vector
    (float32, little-endian bytes), and the `more_tokens` that a row with a draft has sampled after
    tokens[i]: one for each right guess before the first wrong one.
    """

    step_id: int
    tokens: tuple[int, ...]
    finite: tuple[bool, ...]
    logprobs: tuple[TokenLogprobs | None, ...] = ()
    prompt_logprobs: tuple[tuple[TokenLogprobs, ...] | None, ...] = ()
    pooled: tuple[bytes | None, ...] = ()
    more_tokens: tuple[tuple[int, ...], ...] = ()
