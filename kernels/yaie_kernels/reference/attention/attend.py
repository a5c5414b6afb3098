"""Attention over a paged cache in plain torch: gather the keys that are read, then SDPA.

Decode rows (one query each) go through one batched call per group of similar lengths; longer
chunks go one by one. Keys and values are gathered into workspaces that live as long as the
thread: fresh buffers of this size cost several times the copy itself.
"""

# ruff: noqa: PLR0917 - the operations' signatures are positional by contract

import threading
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from yaie_kernels.reference.attention.plan import Chunk, Decode, Shape, plan


class _Workspace(threading.local):
    """Growing scratch buffers, one per name, dtype and device."""

    def __init__(self) -> None:
        self.buffers: dict[tuple[str, torch.dtype, torch.device], Tensor] = {}

    def gather(self, name: str, cache: Tensor, slots: Tensor) -> Tensor:
        """Rows [N, Hk, D] of a cache, valid until the next gather of the same name."""
        rows = cache.flatten(2).flatten(0, 1)
        size = slots.numel() * rows.shape[1]
        key = (name, rows.dtype, rows.device)
        buffer = self.buffers.get(key)
        if buffer is None or buffer.numel() < size:
            with torch.inference_mode(mode=False):  # it outlives the mode of this call
                buffer = rows.new_empty(size + size // 2)
            self.buffers[key] = buffer
        out = buffer[:size].view(slots.numel(), rows.shape[1])
        torch.index_select(rows, 0, slots, out=out)
        return out.view(slots.numel(), *cache.shape[2:])


_workspace = _Workspace()


@dataclass(frozen=True, slots=True)
class _Call:
    k_cache: Tensor
    v_cache: Tensor
    scale: float
    softcap: float | None

    def gather(self, slots: Tensor) -> tuple[Tensor, Tensor]:
        """Keys [N, Hk, D] and values [N, Hk, Dv] at the slots."""
        keys = _workspace.gather("k", self.k_cache, slots)
        if self.values_are_columns:
            return keys, keys[..., : self.v_cache.shape[-1]]
        return keys, _workspace.gather("v", self.v_cache, slots)

    @property
    def values_are_columns(self) -> bool:
        """Whether the values are the first columns of the keys (a latent cache)."""
        k, v = self.k_cache, self.v_cache
        return v.data_ptr() == k.data_ptr() and v.stride() == k.stride()


def paged_attention(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_tables: Tensor,
    seq_lens: Tensor,
    query_start: Tensor,
    *,
    scale: float,
    max_query_len: int,  # noqa: ARG001 - bounds are for kernels; here the lengths are at hand
    max_seq_len: int,  # noqa: ARG001 - same
    window: int | None = None,
    softcap: float | None = None,
    rows: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    call = _Call(k_cache, v_cache, scale, softcap)
    if rows is not None:
        block_tables = block_tables[rows]
    pieces = plan(Shape(k_cache.shape[1], window, q.dtype), block_tables, seq_lens, query_start)
    only = pieces[0] if len(pieces) == 1 else None
    if out is None:
        if isinstance(only, Decode) and only.tokens is None and only.batch == len(q):
            return _decode(call, only, q)
        out = q.new_empty(*q.shape[:2], v_cache.shape[-1])
    for piece in pieces:
        if isinstance(piece, Chunk):
            out[piece.begin : piece.end] = _chunk(call, piece, q[piece.begin : piece.end])
        elif piece.tokens is None:
            out[: piece.batch] = _decode(call, piece, q[: piece.batch])
        else:
            out[piece.tokens] = _decode(call, piece, q[piece.tokens])
    return out


def _decode(call: _Call, piece: Decode, q: Tensor) -> Tensor:
    """q[B,Hq,D], one query per row -> [B,Hq,Dv]."""
    batch, q_heads, head_dim = q.shape
    kv_heads = call.k_cache.shape[2]
    k, v = (  # [B, Hk, W, D]
        rows.view(batch, -1, kv_heads, rows.shape[2]).transpose(1, 2)
        for rows in call.gather(piece.slots)
    )
    packed = q.reshape(batch, kv_heads, q_heads // kv_heads, head_dim)
    return _attend(call, packed, k, v, piece.mask).flatten(1, 2)


def _chunk(call: _Call, piece: Chunk, q: Tensor) -> Tensor:
    """q[n,Hq,D], the last n tokens of a sequence -> [n,Hq,Dv]."""
    queries, q_heads, head_dim = q.shape
    kv_heads = call.k_cache.shape[2]
    group = q_heads // kv_heads
    k, v = (  # [Hk, G (shared), W, D]
        rows.transpose(0, 1).unsqueeze(1).expand(-1, group, -1, -1)
        for rows in call.gather(piece.slots)
    )
    heads = q.view(queries, kv_heads, group, head_dim).permute(1, 2, 0, 3)
    out = _attend(call, heads, k, v, piece.mask, causal=piece.mask is None)
    return out.permute(2, 0, 1, 3).flatten(1, 2)


def _attend(
    call: _Call, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, *, causal: bool = False
) -> Tensor:
    """q[..,n,D] over k, v [..,W,D]; causal only where n == W."""
    if call.softcap is None:
        return scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=causal, scale=call.scale
        )
    scores = torch.matmul(q, k.transpose(-1, -2)).mul_(call.scale / call.softcap)
    scores = scores.tanh_().mul_(call.softcap)
    if causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu_(1)
        scores.masked_fill_(hidden, float("-inf"))
    if mask is not None:
        scores += mask
    return torch.matmul(torch.softmax(scores, dim=-1), v)
