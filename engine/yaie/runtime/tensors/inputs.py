"""Converts the rows of a batch to flat integer arrays: pure numpy, no torch, no device.

The tokens of all rows form one token axis, decode rows first. All integers that a step needs on the
device are packed into one int32 buffer, so that a step needs one host-to-device copy.
"""

from collections.abc import Sequence
from itertools import accumulate, chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from yaie.core.batch import Row

Ints = NDArray[np.int32]


class ForwardBatch(NamedTuple):
    """A step of T tokens in B rows, the first D rows decode. All int32.

    Attributes:
        ids: [T - D] token ids of the rows after the decode rows.
        positions: [T] position of each token in its sequence.
        slot_mapping: [T] page * page_size + offset of each token.
        slots: [B] runner slot of each row.
        seq_lens: [B] context length after this step.
        decode_start: [D + 1] query offsets of the decode rows.
        prefill_start: [B - D + 1] query offsets of the other rows, from 0.
        sampled: [S] row number of each draw; a row with a draft has several draws.
        last: [S] index on the token axis of the token whose logits each draw uses.
        draw_positions: [S] position of each sampled token, which is its RNG counter.

    """

    ids: Ints
    positions: Ints
    slot_mapping: Ints
    slots: Ints
    seq_lens: Ints
    decode_start: Ints
    prefill_start: Ints
    sampled: Ints
    last: Ints
    draw_positions: Ints

    @property
    def n_decode(self) -> int:
        """Number of decode rows, which continue from their last sampled token."""
        return len(self.decode_start) - 1

    @property
    def has_drafts(self) -> bool:
        """Whether a row samples more than once."""
        return self.n_chunks > 0 and bool((np.diff(self.sampled) == 0).any())

    @property
    def n_chunks(self) -> int:
        """Number of rows with token ids: prefill chunks and drafts."""
        return len(self.prefill_start) - 1


def prepare_inputs(rows: Sequence[Row], tables: Ints, page_size: int) -> ForwardBatch:
    """Lay out `rows`; `tables` [slots, max_pages] are the block tables by slot.

    Raises:
        ValueError: a decode row comes after a row with token ids.

    """
    n_decode = _count_decodes(rows)
    slots = _ints(row.slot for row in rows)
    starts = _ints(row.start for row in rows)
    counts = _ints(row.n_tokens for row in rows)
    ends = np.cumsum(counts, dtype=np.int32)
    positions = _ranges(starts, counts, ends)
    pages = tables[np.repeat(slots, counts), positions // page_size]
    sampled = _ints(i for i, row in enumerate(rows) if row.sample)
    last, draw_positions = ends[sampled] - 1, (starts + counts)[sampled]
    if any(row.n_draft for row in rows[n_decode:]):
        draws = 1 + _ints(row.n_draft for row in rows if row.sample)
        last = _ranges(last + 1 - draws, draws, np.cumsum(draws, dtype=np.int32))
        sampled, draw_positions = np.repeat(sampled, draws), positions[last] + 1
    return ForwardBatch(
        ids=_ints(chain.from_iterable(row.tokens for row in rows[n_decode:])),
        positions=positions,
        slot_mapping=pages * page_size + positions % page_size,
        slots=slots,
        seq_lens=starts + counts,
        decode_start=np.arange(n_decode + 1, dtype=np.int32),
        prefill_start=np.concatenate(([0], ends[n_decode:] - n_decode), dtype=np.int32),
        sampled=sampled,
        last=last,
        draw_positions=draw_positions,
    )


def spans(rows: Sequence[Row]) -> list[tuple[int, int]]:
    """The range of each row's tokens on the token axis: (first, one past the last)."""
    ends = list(accumulate(row.n_tokens for row in rows))
    return list(zip([0, *ends[:-1]], ends, strict=True))


def _count_decodes(rows: Sequence[Row]) -> int:
    """Number of decode rows (rows without ids), which must all come first."""
    n_decode = next((i for i, row in enumerate(rows) if row.tokens), len(rows))
    if any(len(row.tokens) != row.n_tokens for row in rows[n_decode:]):
        raise ValueError("rows that bring token ids must follow the decode rows")
    return n_decode


def pack(arrays: Sequence[NDArray[Any]]) -> tuple[Ints, list[int]]:
    """Concatenate 32-bit (or 64-bit) arrays bitwise into one int32 array; also their lengths."""
    parts = [array.reshape(-1).view(np.int32) for array in arrays]
    return np.concatenate(parts), [len(part) for part in parts]


def _ranges(starts: Ints, counts: Ints, ends: Ints) -> Ints:
    """Concatenated ranges starts[i] .. starts[i] + counts[i] - 1. `ends`: cumulative sum of
    `counts`.
    """
    return np.arange(counts.sum(), dtype=np.int32) + np.repeat(starts - ends + counts, counts)


def _ints(values: Any) -> Ints:
    return np.fromiter(values, dtype=np.int32)
