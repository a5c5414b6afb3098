"""What a step reads from the paged cache, worked out once and used by every layer.

All layers of a step pass the same tables and lengths. The last plans are kept and used again as
long as the contents are equal; comparing costs a few microseconds, planning ten times as much.
Positions past a row's end are pointed at the first that it sees, so no stale slot is ever read.
"""

import threading
from dataclasses import dataclass

import torch
from torch import Tensor

_WASTE_TOKENS = 1024  # padding a decode group may carry before it is split


@dataclass(frozen=True, slots=True)
class Decode:
    """Rows of one query each, padded to the longest."""

    tokens: Tensor | None  # [B] rows of q; None: all of them, in order
    batch: int
    slots: Tensor  # [B * W]
    mask: Tensor | None  # [B, 1, 1, W] of 0 and -inf


@dataclass(frozen=True, slots=True)
class Chunk:
    """The last tokens of one sequence."""

    begin: int
    end: int
    slots: Tensor  # [W]
    mask: Tensor | None  # [n, W] of 0 and -inf; None: the chunk is the sequence, plain causal


@dataclass(frozen=True, slots=True)
class Shape:
    """What a plan depends on beside the batch."""

    page_size: int
    window: int | None
    dtype: torch.dtype


class _Last(threading.local):
    """The batch planned last by this thread, and its plans by shape."""

    def __init__(self) -> None:
        self.tables: Tensor | None = None
        self.lengths: list[int] = []
        self.starts: list[int] = []
        self.plans: dict[Shape, list[Decode | Chunk]] = {}


_last = _Last()


def plan(
    shape: Shape, block_tables: Tensor, seq_lens: Tensor, query_start: Tensor
) -> list[Decode | Chunk]:
    """The pieces of one attention call."""
    lengths: list[int] = seq_lens.tolist()
    starts: list[int] = query_start.tolist()
    same = (
        _last.tables is not None
        and lengths == _last.lengths
        and starts == _last.starts
        and _last.tables.device == block_tables.device
        and torch.equal(_last.tables, block_tables)
    )
    if not same:
        _last.tables, _last.lengths, _last.starts = block_tables.clone(), lengths, starts
        _last.plans = {}
    if shape not in _last.plans:
        _last.plans[shape] = _pieces(shape, block_tables, lengths, starts)
    return _last.plans[shape]


def _pieces(
    shape: Shape, tables: Tensor, lengths: list[int], starts: list[int]
) -> list[Decode | Chunk]:
    pieces: list[Decode | Chunk] = []
    single = []
    for row, length in enumerate(lengths):
        begin, end = starts[row], starts[row + 1]
        if length == 0:
            continue
        if end - begin == 1:
            single.append(row)
        elif end > begin:
            pieces.append(_chunk(shape, tables[row], length, begin, end))
    widths = [_visible(shape, lengths[row]) for row in single]
    for group in groups(widths):
        rows = [single[member] for member in group]
        everything = rows == list(range(len(lengths))) and starts[-1] == len(lengths)
        tokens = None if everything else [starts[row] for row in rows]
        pieces.append(_decode(shape, tables, rows, [lengths[row] for row in rows], tokens))
    return pieces


def _visible(shape: Shape, length: int) -> int:
    return length if shape.window is None else min(length, shape.window)


def groups(widths: list[int]) -> list[list[int]]:
    """Members grouped so that padding to the longest of a group stays small."""
    if not widths:
        return []
    if max(widths) * len(widths) - sum(widths) <= _WASTE_TOKENS:
        return [list(range(len(widths)))]
    found: list[list[int]] = []
    for member in sorted(range(len(widths)), key=widths.__getitem__, reverse=True):
        if found and 2 * widths[member] > widths[found[-1][0]]:
            found[-1].append(member)
        else:
            found.append([member])
    return found


def _decode(
    shape: Shape, tables: Tensor, rows: list[int], lengths: list[int], tokens: list[int] | None
) -> Decode:
    device = tables.device
    width = max(_visible(shape, length) for length in lengths)
    ends = torch.tensor(lengths, device=device).unsqueeze(1)
    positions = torch.arange(width, device=device).expand(len(rows), width)
    if shape.window is not None:
        positions = positions + (ends - shape.window).clamp_(min=0)
    mask = None
    if min(lengths) != max(lengths):
        hidden = positions >= ends
        positions = torch.where(hidden, positions[:, :1], positions)
        mask = _mask(hidden, shape.dtype).view(len(rows), 1, 1, width)
    return Decode(
        tokens=None if tokens is None else torch.tensor(tokens, device=device),
        batch=len(rows),
        slots=_slots(shape, tables[torch.tensor(rows, device=device)], positions),
        mask=mask,
    )


def _chunk(shape: Shape, table: Tensor, length: int, begin: int, end: int) -> Chunk:
    queries = end - begin
    first = 0 if shape.window is None else max(0, length - queries - shape.window + 1)
    positions = torch.arange(first, length, device=table.device)
    slots = _slots(shape, table.unsqueeze(0), positions.unsqueeze(0))
    if queries == length and shape.window is None:
        return Chunk(begin, end, slots, mask=None)
    own = torch.arange(length - queries, length, device=table.device).unsqueeze(1)
    hidden = positions > own
    if shape.window is not None:
        hidden |= positions <= own - shape.window
    return Chunk(begin, end, slots, _mask(hidden, shape.dtype))


def _mask(hidden: Tensor, dtype: torch.dtype) -> Tensor:
    empty = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device)
    return empty.masked_fill_(hidden, float("-inf"))


def _slots(shape: Shape, tables: Tensor, positions: Tensor) -> Tensor:
    """Token slots of positions[B,W] through tables[B,P], flattened."""
    pages = tables.gather(1, positions // shape.page_size).long()
    return pages.mul_(shape.page_size).add_(positions % shape.page_size).flatten()
