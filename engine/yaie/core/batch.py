"""What the scheduler tells the model runner, and what comes back. Frozen, msgspec-serializable.

A `Batch` carries changes only: the runner keeps one device-resident slot per running sequence (its
last token, block tables, sampling parameters), and a batch says which slots start, grow, run, end.
Every rank receives the same Batch.
"""

import msgspec

from yaie.core.request import SamplingParams


class SlotInit(msgspec.Struct, frozen=True, array_like=True):
    """A sequence enters `slot`. `pages[g]` is its block table in layer group g so far."""

    slot: int
    seq_id: int
    sampling: SamplingParams
    seed: int
    pages: tuple[tuple[int, ...], ...]


class PageAppend(msgspec.Struct, frozen=True, array_like=True):
    """`pages` are appended to the block table of `slot` in layer group `group`."""

    slot: int
    group: int
    pages: tuple[int, ...]


class PageCopy(msgspec.Struct, frozen=True, array_like=True):
    """Copy one page inside layer group `group` on the device before the forward pass."""

    group: int
    source: int
    target: int


class Row(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """`n_tokens` tokens of one sequence, at positions start .. start + n_tokens - 1.

    `tokens` holds their ids. It is empty when the one token to run is the slot's last sampled
    token, which may still be in flight and never needs to visit the host.
    `sample`: sample the token that follows the row's last position (the RNG counter of that draw is
    that position, start + n_tokens). `epoch` is the sequence's epoch when the row was scheduled.
    """

    seq_id: int
    slot: int
    epoch: int
    start: int
    n_tokens: int
    tokens: tuple[int, ...]
    sample: bool


class Batch(msgspec.Struct, frozen=True, array_like=True):
    """One step. Apply in this order: releases, inits, appends, copies, then run rows.

    Rows that decode (one token, no ids given) come first, prefill chunks after them.
    """

    step_id: int
    releases: tuple[int, ...]
    inits: tuple[SlotInit, ...]
    appends: tuple[PageAppend, ...]
    copies: tuple[PageCopy, ...]
    rows: tuple[Row, ...]

    @property
    def n_tokens(self) -> int:
        """Tokens computed in this step."""
        return sum(row.n_tokens for row in self.rows)


class StepResult(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Outcome of a batch, aligned with its rows.

    tokens[i] is the sampled id, or -1 where the row did not sample. finite[i] is False when the
    row's logits held NaN or only -inf: that sequence fails, the rest of the batch goes on.
    """

    step_id: int
    tokens: tuple[int, ...]
    finite: tuple[bool, ...]
