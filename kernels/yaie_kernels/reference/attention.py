"""Attention over a paged cache in plain torch: gather the keys that are read, then SDPA.

Decode rows (one query each) go through one batched call per group of similar lengths; longer
chunks go one by one. Keys and values are gathered into workspaces that live as long as the
thread: fresh buffers of this size cost several times the copy itself.
Masked positions read the sequence's own first key, so stale pages are never touched.
"""

# ruff: noqa: PLR0917 - the operations' signatures are positional by contract

import threading
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

_WASTE_TOKENS = 1024  # padding a decode group may carry before it is split


@dataclass(frozen=True, slots=True)
class _Call:
    """What stays the same for every row of one call."""

    k_rows: Tensor  # [pages * page_size, Hk * D]
    v_rows: Tensor
    page_size: int
    kv_heads: int
    scale: float
    window: int | None
    softcap: float | None


class _Workspace(threading.local):
    """Growing scratch buffers, one per name and dtype."""

    def __init__(self) -> None:
        self._buffers: dict[tuple[str, torch.dtype, torch.device], Tensor] = {}

    def gather(self, name: str, rows: Tensor, index: Tensor) -> Tensor:
        """rows[index] in a reused buffer, valid until the next gather of the same name."""
        key = (name, rows.dtype, rows.device)
        size = index.numel() * rows.shape[1]
        buffer = self._buffers.get(key)
        if buffer is None or buffer.numel() < size:
            buffer = rows.new_empty(size + size // 2)
            self._buffers[key] = buffer
        out = buffer[:size].view(index.numel(), rows.shape[1])
        torch.index_select(rows, 0, index, out=out)
        return out


_workspace = _Workspace()


def paged_attention(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_tables: Tensor,
    seq_lens: Tensor,
    query_start: Tensor,
    *,
    scale: float,
    max_query_len: int,
    max_seq_len: int,  # noqa: ARG001 - a bound for kernels; here the lengths are at hand
    window: int | None = None,
    softcap: float | None = None,
) -> Tensor:
    _, page_size, kv_heads, _ = k_cache.shape
    call = _Call(
        k_rows=k_cache.flatten(2).flatten(0, 1),
        v_rows=v_cache.flatten(2).flatten(0, 1),
        page_size=page_size,
        kv_heads=kv_heads,
        scale=scale,
        window=window,
        softcap=softcap,
    )
    lengths: list[int] = seq_lens.tolist()
    out = q.new_empty(q.shape)
    if max_query_len == 1 and q.shape[0] == len(lengths):
        _decode(call, q, block_tables, seq_lens, lengths, out)
    else:
        _mixed(call, q, block_tables, seq_lens, lengths, query_start, out)
    return out


def _mixed(
    call: _Call,
    q: Tensor,
    block_tables: Tensor,
    seq_lens: Tensor,
    lengths: list[int],
    query_start: Tensor,
    out: Tensor,
) -> None:
    starts: list[int] = query_start.tolist()
    singles = []
    for row, length in enumerate(lengths):
        begin, end = starts[row], starts[row + 1]
        if end - begin == 1:
            singles.append(row)
        elif end > begin:
            out[begin:end] = _chunk(call, q[begin:end], block_tables[row], length)
    if singles:
        rows = torch.tensor(singles, device=q.device)
        tokens = query_start[rows].long()
        part = q.new_empty((len(singles), *q.shape[1:]))
        _decode(
            call, q[tokens], block_tables[rows], seq_lens[rows], [lengths[r] for r in singles], part
        )
        out[tokens] = part


def _decode(
    call: _Call,
    q: Tensor,
    block_tables: Tensor,
    seq_lens: Tensor,
    lengths: list[int],
    out: Tensor,
) -> None:
    if not lengths:
        return
    groups = _groups([_visible(call, length) for length in lengths])
    if len(groups) == 1:
        out.copy_(_decode_group(call, q, block_tables, seq_lens, lengths))
        return
    for members in groups:
        rows = torch.tensor(members, device=q.device)
        picked = [lengths[row] for row in members]
        out[rows] = _decode_group(call, q[rows], block_tables[rows], seq_lens[rows], picked)


def _visible(call: _Call, length: int) -> int:
    return length if call.window is None else min(length, call.window)


def _groups(widths: list[int]) -> list[list[int]]:
    """Rows grouped so that padding to the longest row of a group stays small."""
    longest, total = max(widths), sum(widths)
    if longest * len(widths) - total <= _WASTE_TOKENS:
        return [list(range(len(widths)))]
    groups: list[list[int]] = []
    for row in sorted(range(len(widths)), key=widths.__getitem__, reverse=True):
        if groups and 2 * widths[row] > widths[groups[-1][0]]:
            groups[-1].append(row)
        else:
            groups.append([row])
    return groups


def _decode_group(
    call: _Call, q: Tensor, block_tables: Tensor, seq_lens: Tensor, lengths: list[int]
) -> Tensor:
    """q[B,Hq,D], one query per row -> [B,Hq,D]."""
    batch, q_heads, head_dim = q.shape
    width = max(_visible(call, length) for length in lengths)
    even = min(lengths) == max(lengths)
    positions = torch.arange(width, device=q.device)  # [W], or [B, W] once rows differ
    mask = None
    if call.window is not None:
        positions = positions + (seq_lens.long() - call.window).clamp_(min=0).unsqueeze(1)
    if not even:
        hidden = positions >= seq_lens.unsqueeze(1)
        positions = positions.masked_fill(hidden, 0)
        mask = torch.zeros(hidden.shape, dtype=q.dtype, device=q.device)
        mask = mask.masked_fill_(hidden, float("-inf")).view(batch, 1, 1, width)
    slots = _slots(call, block_tables, positions.expand(batch, width)).flatten()
    k, v = (
        _workspace.gather(name, rows, slots)
        .view(batch, width, call.kv_heads, head_dim)
        .transpose(1, 2)
        for name, rows in (("k", call.k_rows), ("v", call.v_rows))
    )
    packed = q.reshape(batch, call.kv_heads, q_heads // call.kv_heads, head_dim)
    return _attend(call, packed, k, v, mask).reshape(batch, q_heads, head_dim)


def _slots(call: _Call, tables: Tensor, positions: Tensor) -> Tensor:
    """Token slots of positions[B,W] through block tables[B,P]."""
    pages = tables.gather(1, positions // call.page_size).long()
    return pages.mul_(call.page_size).add_(positions % call.page_size)


def _chunk(call: _Call, q: Tensor, block_table: Tensor, length: int) -> Tensor:
    """q[n,Hq,D], the last n tokens of a sequence of `length` tokens -> [n,Hq,D]."""
    queries, q_heads, head_dim = q.shape
    first = 0
    if call.window is not None:
        first = max(0, length - queries - call.window + 1)
    positions = torch.arange(first, length, device=q.device)
    slots = _slots(call, block_table.unsqueeze(0), positions.unsqueeze(0))[0]
    group = q_heads // call.kv_heads
    k, v = (  # [Hk, G (shared), W, D]
        _workspace.gather(name, rows, slots)
        .view(-1, call.kv_heads, head_dim)
        .transpose(0, 1)
        .unsqueeze(1)
        .expand(-1, group, -1, -1)
        for name, rows in (("k", call.k_rows), ("v", call.v_rows))
    )
    heads = q.view(queries, call.kv_heads, group, head_dim).permute(1, 2, 0, 3)
    plain = queries == length and call.softcap is None
    if plain and call.window is None:
        out = scaled_dot_product_attention(heads, k, v, is_causal=True, scale=call.scale)
    else:
        mask = _chunk_mask(call, q, positions, length)
        out = _attend(call, heads, k, v, mask)
    return out.permute(2, 0, 1, 3).reshape(queries, q_heads, head_dim)


def _chunk_mask(call: _Call, q: Tensor, positions: Tensor, length: int) -> Tensor:
    own = torch.arange(length - q.shape[0], length, device=q.device).unsqueeze(1)
    hidden = positions > own
    if call.window is not None:
        hidden |= positions <= own - call.window
    mask = torch.zeros(hidden.shape, dtype=q.dtype, device=q.device)
    return mask.masked_fill_(hidden, float("-inf"))


def _attend(call: _Call, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    if call.softcap is None:
        return scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=call.scale)
    scores = torch.matmul(q, k.transpose(-1, -2)).mul_(call.scale / call.softcap)
    scores = scores.tanh_().mul_(call.softcap)
    if mask is not None:
        scores += mask
    return torch.matmul(torch.softmax(scores, dim=-1), v)
