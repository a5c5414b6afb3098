"""Decode attention: one query per sequence, the KV cache split among programs, then a reduction.

All query heads of a KV head are one block of rows, so each key and value is read once. A
sequence's tokens are dealt to `splits` programs by its true length, which the kernel reads; the
host chooses only the number of splits, from the batch and an upper bound of the lengths.
"""

# ruff: noqa: PLR0917, D403 - a kernel takes pointers and strides; its docstring is its formula


# mypy: disable-error-code="no-untyped-def"

import torch
import triton
import triton.language as tl
from torch import Tensor

from yaie_kernels.triton.cache import needs_wide

_PROGRAMS = 264  # two a multiprocessor: more splits than that cost bandwidth (measured, H200)
_LEAST_TOKENS = 64  # a program's smallest share
_MOST_TOKENS = 2048  # longer shares make one long sequence the tail of the whole batch
_MAX_SPLITS = 64


@triton.jit
def _decode_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, part_ptr, lse_ptr, tables_ptr, lens_ptr,
    scale, softcap, window,
    q_token_stride, q_head_stride, table_stride, cache_token_stride,
    group, head_dim, splits, wanted,
    PAGE: tl.constexpr, BLOCK_G: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
    HAS_WINDOW: tl.constexpr, HAS_SOFTCAP: tl.constexpr, SPLIT: tl.constexpr,
    EVEN_D: tl.constexpr, WIDE: tl.constexpr, MOST: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """part = softmax(q k^T) v over this program's tokens; lse = log2 of its sum of exponentials."""
    kv_head = tl.program_id(0)
    row = tl.program_id(1).to(tl.int64)
    split = tl.program_id(2)
    kv_heads = tl.num_programs(0)

    length = tl.load(lens_ptr + row)
    first = 0
    if HAS_WINDOW:
        first = tl.maximum(length - window, 0)
    begin, end = first, length
    if SPLIT:
        share = tl.minimum(tl.cdiv(length - first, wanted), MOST)
        share = tl.maximum(share, tl.cdiv(length - first, splits))
        share = tl.cdiv(share, BLOCK_N) * BLOCK_N
        begin = first + split * share
        end = tl.minimum(begin + share, length)

    lane = tl.arange(0, BLOCK_G)
    col = tl.arange(0, BLOCK_D)
    head = kv_head * group + lane
    live = (lane < group)[:, None] & (col < head_dim)[None, :]
    q = tl.load(
        q_ptr + row * q_token_stride + head[:, None] * q_head_stride + col[None, :],
        mask=live, other=0.0,
    )  # fmt: skip

    best = tl.full([BLOCK_G], float("-inf"), dtype=tl.float32)
    total = tl.zeros([BLOCK_G], dtype=tl.float32)
    acc = tl.zeros([BLOCK_G, BLOCK_D], dtype=tl.float32)
    table = tables_ptr + row * table_stride
    offset = tl.arange(0, BLOCK_N)
    in_row = kv_head * head_dim + col
    factor = 1.4426950408889634 if HAS_SOFTCAP else scale * 1.4426950408889634
    for start in range(begin, end, BLOCK_N):
        token = start + offset
        here = token < end
        page = tl.load(table + token // PAGE, mask=here, other=0)
        slot = (page.to(tl.int64) if WIDE else page) * PAGE + token % PAGE
        base = slot * cache_token_stride
        where = base[:, None] + in_row[None, :]
        mask = here[:, None] if EVEN_D else here[:, None] & (col < head_dim)[None, :]
        k = tl.load(k_ptr + where, mask=mask, other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision=PRECISION)
        if HAS_SOFTCAP:
            bend = tl.exp2(scores * (scale * 2.8853900817779268 / softcap))
            scores = softcap * (1.0 - 2.0 / (bend + 1.0))
        scores = tl.where(here[None, :], scores, float("-inf"))
        peak = tl.maximum(best, tl.max(scores, axis=1))
        shrink = tl.exp2((best - peak) * factor)
        p = tl.exp2(scores * factor - (peak * factor)[:, None])  # one fused multiply-add
        total = total * shrink + tl.sum(p, axis=1)
        v = tl.load(v_ptr + where, mask=mask, other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None], input_precision=PRECISION)
        best = peak

    if SPLIT:
        q_heads = kv_heads * group
        at = (row * q_heads + head) * splits + split
        some = tl.where(total > 0, total, 1.0)  # a short sequence leaves late splits empty
        part = acc / some[:, None]
        tl.store(part_ptr + at[:, None] * head_dim + col[None, :], part, mask=live)
        lse = tl.where(total > 0, best * factor + tl.log2(some), float("-inf"))
        tl.store(lse_ptr + at, lse, mask=lane < group)
    else:
        at = row * (kv_heads * group) + head
        tl.store(out_ptr + at[:, None] * head_dim + col[None, :], acc / total[:, None], mask=live)


@triton.jit
def _reduce_kernel(
    part_ptr, lse_ptr, out_ptr, head_dim, splits,
    BLOCK_S: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """out = sum_s part[s] 2**lse[s] / sum_s 2**lse[s]; empty splits have lse -inf."""
    at = tl.program_id(0).to(tl.int64)
    split = tl.arange(0, BLOCK_S)
    col = tl.arange(0, BLOCK_D)
    lse = tl.load(lse_ptr + at * splits + split, mask=split < splits, other=float("-inf"))
    share = tl.exp2(lse - tl.max(lse, axis=0))
    mask = (split < splits)[:, None] & (col < head_dim)[None, :]
    part = tl.load(
        part_ptr + (at * splits + split)[:, None] * head_dim + col[None, :], mask=mask, other=0.0
    )
    out = tl.sum(part * share[:, None], axis=0) / tl.sum(share, axis=0)
    tl.store(out_ptr + at * head_dim + col, out, mask=col < head_dim)


def choose_splits(batch: int, kv_heads: int, max_tokens: int) -> tuple[int, int]:
    """(programs for one sequence and KV head, how many of them a sequence wants).

    Enough of them to fill the GPU, and more where a sequence is so long that it needs them.
    """
    useful = triton.cdiv(max_tokens, _LEAST_TOKENS)
    wanted = max(1, min(triton.cdiv(_PROGRAMS, max(1, batch * kv_heads)), useful, _MAX_SPLITS))
    longest = min(triton.cdiv(max_tokens, _MOST_TOKENS), _MAX_SPLITS)
    return max(wanted, longest), wanted


def _tiles(head_dim: int, dtype: torch.dtype) -> tuple[int, int, int]:
    """(BLOCK_N, num_warps, num_stages)."""
    if dtype == torch.float32:
        return 32, 4, 2
    return (64, 4, 3) if head_dim <= 128 else (32, 4, 3)


def decode(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_tables: Tensor,
    seq_lens: Tensor,
    *,
    scale: float,
    max_seq_len: int,
    window: int | None,
    softcap: float | None,
    splits: int | None = None,
    tiles: tuple[int, int, int] | None = None,
) -> Tensor:
    """q[B,Hq,D] -> [B,Hq,D]; `splits` and `tiles` override the choice, for tests and tuning."""
    batch, q_heads, head_dim = q.shape
    page_size, kv_heads = k_cache.shape[1], k_cache.shape[2]
    out = torch.empty((batch, q_heads, head_dim), dtype=q.dtype, device=q.device)
    if batch == 0:
        return out
    reach = max_seq_len if window is None else min(window, max_seq_len)
    if splits is None:
        splits, wanted = choose_splits(batch, kv_heads, reach)
    else:
        wanted = splits
    part, lse = out, out  # unused pointers when nothing is split
    if splits > 1:
        rows = batch * q_heads * splits
        part = torch.empty((rows, head_dim), dtype=torch.float32, device=q.device)
        lse = torch.empty(rows, dtype=torch.float32, device=q.device)
    group = q_heads // kv_heads
    block_d = triton.next_power_of_2(head_dim)
    block_n, warps, stages = tiles or _tiles(head_dim, q.dtype)
    _decode_kernel[(kv_heads, batch, splits)](
        q, k_cache, v_cache, out, part, lse, block_tables, seq_lens,
        scale, softcap or 0.0, window or 0,
        q.stride(0), q.stride(1), block_tables.stride(0), k_cache.stride(1),
        group, head_dim, splits, wanted,
        PAGE=page_size, BLOCK_G=max(16, triton.next_power_of_2(group)),
        BLOCK_N=block_n, BLOCK_D=block_d,
        HAS_WINDOW=window is not None, HAS_SOFTCAP=softcap is not None, SPLIT=splits > 1,
        EVEN_D=block_d == head_dim, WIDE=needs_wide(k_cache), MOST=_MOST_TOKENS,
        PRECISION="ieee" if q.dtype == torch.float32 else "tf32",
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
    if splits > 1:
        _reduce_kernel[(batch * q_heads,)](
            part, lse, out, head_dim, splits,
            BLOCK_S=triton.next_power_of_2(splits), BLOCK_D=block_d, num_warps=4,
        )  # fmt: skip
    return out
