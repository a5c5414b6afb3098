"""Decode attention: one query per sequence, the KV cache split among programs, then a reduction.

All query heads of a KV head are one block of rows (or a few, where a latent cache serves a hundred
of them), so each key and value is read once. Keys may be wider than values: `layout` says how. A
sequence's tokens are dealt to `splits` programs by its true length, which the kernel reads; the
host chooses only the number of splits, from the batch and an upper bound of the lengths. Rows of
length 0 or without a query are padding: nothing of them is read or written.

Variants of the compiled kernel come from the constexprs, from `rows` (none, int32, int64), and
from the alignment of q, the caches and `out` and of their strides, as in `extend`.
"""

# ruff: noqa: PLR0917, D403 - a kernel takes pointers and strides; its docstring is its formula


# mypy: disable-error-code="no-untyped-def"

import torch
import triton
import triton.language as tl
from torch import Tensor

from yaie_kernels.triton.cache import needs_wide
from yaie_kernels.triton.layout import Layout, add_tail, layout, own_values, table_of

_PROGRAMS = 264  # two a multiprocessor: more splits than that cost bandwidth (measured, H200)
_LEAST_TOKENS = 64  # a program's smallest share
_MOST_TOKENS = 2048  # longer shares make one long sequence the tail of the whole batch
_MAX_SPLITS = 64


@triton.jit
def _row(lens_ptr, starts_ptr, row):
    """(length, place of its query) of a row; 0 tokens if it is padding."""
    query = tl.load(starts_ptr + row)
    has_query = tl.load(starts_ptr + row + 1) > query
    return tl.where(has_query, tl.load(lens_ptr + row), 0), query.to(tl.int64)


@triton.jit(
    do_not_specialize=["window", "table_stride", "group", "splits", "wanted"],
    do_not_specialize_on_alignment=["tables_ptr", "rows_ptr", "lens_ptr", "starts_ptr"],
)
def _decode_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, part_ptr, lse_ptr, tables_ptr, rows_ptr, lens_ptr, starts_ptr,
    scale, softcap, window,
    q_token_stride, q_head_stride, out_token_stride, table_stride,
    cache_token_stride, value_token_stride, group, head_dim, value_dim, splits, wanted,
    PAGE: tl.constexpr, BLOCK_G: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_TAIL: tl.constexpr, BLOCK_V: tl.constexpr, VALUES: tl.constexpr, BLOCKS: tl.constexpr,
    HAS_WINDOW: tl.constexpr, HAS_SOFTCAP: tl.constexpr, SPLIT: tl.constexpr,
    EVEN_D: tl.constexpr, WIDE: tl.constexpr, MOST: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """part = softmax(q k^T) v over this program's tokens; lse = log2 of its sum of exponentials."""
    kv_head = tl.program_id(0) // BLOCKS
    row = tl.program_id(1).to(tl.int64)
    split = tl.program_id(2)
    kv_heads = tl.num_programs(0) // BLOCKS

    length, query = _row(lens_ptr, starts_ptr, row)
    if length == 0:
        return
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

    lane = tl.program_id(0) % BLOCKS * BLOCK_G + tl.arange(0, BLOCK_G)
    col = tl.arange(0, BLOCK_D)
    head = kv_head * group + lane
    live = (lane < group)[:, None] & (col < head_dim)[None, :]
    q = tl.load(
        q_ptr + query * q_token_stride + head[:, None] * q_head_stride + col[None, :],
        mask=live, other=0.0,
    )  # fmt: skip
    if BLOCK_TAIL:
        tail_col = BLOCK_D + tl.arange(0, BLOCK_TAIL)
        q_tail = tl.load(
            q_ptr + query * q_token_stride + head[:, None] * q_head_stride + tail_col[None, :],
            mask=(lane < group)[:, None] & (tail_col < head_dim)[None, :], other=0.0,
        )  # fmt: skip
    value_col = tl.arange(0, BLOCK_V)

    best = tl.full([BLOCK_G], float("-inf"), dtype=tl.float32)
    total = tl.zeros([BLOCK_G], dtype=tl.float32)
    acc = tl.zeros([BLOCK_G, BLOCK_V], dtype=tl.float32)
    table = table_of(tables_ptr, rows_ptr, row, table_stride)
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
        if BLOCK_TAIL:
            scores = add_tail(
                scores, q_tail, k_ptr, base, here, kv_head, head_dim, BLOCK_D, BLOCK_TAIL, PRECISION
            )
        if HAS_SOFTCAP:
            bend = tl.exp2(scores * (scale * 2.8853900817779268 / softcap))
            scores = softcap * (1.0 - 2.0 / (bend + 1.0))
        scores = tl.where(here[None, :], scores, float("-inf"))
        peak = tl.maximum(best, tl.max(scores, axis=1))
        shrink = tl.exp2((best - peak) * factor)
        p = tl.exp2(scores * factor - (peak * factor)[:, None])  # one fused multiply-add
        total = total * shrink + tl.sum(p, axis=1)
        if VALUES == "columns":
            v = k
        elif VALUES == "like keys":
            v = tl.load(v_ptr + where, mask=mask, other=0.0)
        else:
            v = own_values(v_ptr, slot, here, value_token_stride, kv_head, value_dim, BLOCK_V)
        acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None], input_precision=PRECISION)
        best = peak

    stored = (lane < group)[:, None] & (value_col < value_dim)[None, :]
    if SPLIT:
        q_heads = kv_heads * group
        at = (row * q_heads + head) * splits + split
        some = tl.where(total > 0, total, 1.0)  # a short sequence leaves late splits empty
        part = acc / some[:, None]
        tl.store(part_ptr + at[:, None] * value_dim + value_col[None, :], part, mask=stored)
        lse = tl.where(total > 0, best * factor + tl.log2(some), float("-inf"))
        tl.store(lse_ptr + at, lse, mask=lane < group)
    else:
        at = query * out_token_stride + head * value_dim
        out = acc / total[:, None]
        tl.store(out_ptr + at[:, None] + value_col[None, :], out, mask=stored)


@triton.jit(
    do_not_specialize=["splits"],
    do_not_specialize_on_alignment=["lens_ptr", "starts_ptr"],
)
def _reduce_kernel(
    part_ptr, lse_ptr, out_ptr, lens_ptr, starts_ptr, out_token_stride, value_dim, splits,
    BLOCK_S: tl.constexpr, BLOCK_V: tl.constexpr,
):  # fmt: skip
    """out = sum_s part[s] 2**lse[s] / sum_s 2**lse[s]; empty splits have lse -inf."""
    head, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    length, query = _row(lens_ptr, starts_ptr, row)
    if length == 0:
        return
    at = row * tl.num_programs(0) + head
    split = tl.arange(0, BLOCK_S)
    col = tl.arange(0, BLOCK_V)
    lse = tl.load(lse_ptr + at * splits + split, mask=split < splits, other=float("-inf"))
    share = tl.exp2(lse - tl.max(lse, axis=0))
    mask = (split < splits)[:, None] & (col < value_dim)[None, :]
    part = tl.load(
        part_ptr + (at * splits + split)[:, None] * value_dim + col[None, :], mask=mask, other=0.0
    )
    out = tl.sum(part * share[:, None], axis=0) / tl.sum(share, axis=0)
    to = out_ptr + query * out_token_stride + head * value_dim
    tl.store(to + col, out, mask=col < value_dim)


def choose_splits(
    batch: int, heads: int, max_tokens: int, programs: int | None = None
) -> tuple[int, int]:
    """(programs for one sequence and block of heads, how many of them a sequence wants).

    Enough of them to fill the GPU, and more where a sequence is so long that it needs them.
    `programs`: at most so many in all, where a program fills a multiprocessor and one more than
    fit at once costs another round.
    """
    rows = max(1, batch * heads)
    filling = triton.cdiv(_PROGRAMS, rows) if programs is None else programs // rows
    useful = triton.cdiv(max_tokens, _LEAST_TOKENS)
    wanted = max(1, min(filling, useful, _MAX_SPLITS))
    longest = min(triton.cdiv(max_tokens, _MOST_TOKENS), _MAX_SPLITS)
    return max(wanted, longest), wanted


def _tiles(shape: Layout, block_g: int, dtype: torch.dtype) -> tuple[int, int, int]:
    """(BLOCK_N, num_warps, num_stages)."""
    if dtype == torch.float32:
        return (32, 4, 2) if shape.keys <= 256 else (16, 4, 1)
    if shape.keys > 256:
        return 64, 4 if block_g < 64 else 8, 2
    return (64, 4, 3) if shape.keys <= 128 else (32, 4, 3)


def _head_block(group: int, shape: Layout, dtype: torch.dtype) -> int:
    """Query heads of a program: all of a KV head's, as long as their sums fit its registers."""
    most = group
    if shape.values > 256:
        most = 16 if dtype == torch.float32 else 64
    block: int = triton.next_power_of_2(min(group, most))
    return max(16, block)


def _programs(shape: Layout, block_g: int) -> int | None:
    """Most programs of a latent cache: two rounds of small ones, one of large ones (measured)."""
    if shape.keys <= 256:
        return None
    return _PROGRAMS if block_g < 64 else _PROGRAMS // 2


def decode(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_tables: Tensor,
    seq_lens: Tensor,
    query_start: Tensor,
    *,
    scale: float,
    max_seq_len: int,
    window: int | None,
    softcap: float | None,
    rows: Tensor | None = None,
    out: Tensor | None = None,
    splits: int | None = None,
    tiles: tuple[int, int, int] | None = None,
    heads: int | None = None,
) -> Tensor:
    """q[T,Hq,D] -> [T,Hq,Dv]; `splits`, `tiles` and `heads` (of a program) override the choice."""
    tokens, q_heads, head_dim = q.shape
    _, page_size, kv_heads, value_dim = v_cache.shape
    batch = seq_lens.shape[0]
    if out is None:
        out = q.new_empty((tokens, q_heads, value_dim))
    if batch == 0:
        return out
    shape = layout(k_cache, v_cache)
    group = q_heads // kv_heads
    block_g = heads or _head_block(group, shape, q.dtype)
    blocks = triton.cdiv(group, block_g)
    reach = max_seq_len if window is None else min(window, max_seq_len)
    if splits is None:
        programs = _programs(shape, block_g)
        splits, wanted = choose_splits(batch, kv_heads * blocks, reach, programs)
    else:
        wanted = splits
    part, lse = out, out  # unused pointers when nothing is split
    if splits > 1:
        parts = batch * q_heads * splits
        part = torch.empty((parts, value_dim), dtype=torch.float32, device=q.device)
        lse = torch.empty(parts, dtype=torch.float32, device=q.device)
    block_n, warps, stages = tiles or _tiles(shape, block_g, q.dtype)
    _decode_kernel[(kv_heads * blocks, batch, splits)](
        q, k_cache, v_cache, out, part, lse, block_tables, rows, seq_lens, query_start,
        scale, softcap or 0.0, window or 0,
        q.stride(0), q.stride(1), out.stride(0), block_tables.stride(0),
        k_cache.stride(1), v_cache.stride(1), group, head_dim, value_dim, splits, wanted,
        PAGE=page_size, BLOCK_G=block_g, BLOCK_N=block_n, BLOCK_D=shape.keys,
        BLOCK_TAIL=shape.tail, BLOCK_V=shape.values, VALUES=shape.kind, BLOCKS=blocks,
        HAS_WINDOW=window is not None, HAS_SOFTCAP=softcap is not None, SPLIT=splits > 1,
        EVEN_D=shape.keys <= head_dim, MOST=_MOST_TOKENS,
        WIDE=needs_wide(k_cache) or needs_wide(v_cache),
        PRECISION="ieee" if q.dtype == torch.float32 else "tf32",
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
    if splits > 1:
        _reduce_kernel[(q_heads, batch)](
            part, lse, out, seq_lens, query_start, out.stride(0), value_dim, splits,
            BLOCK_S=triton.next_power_of_2(splits), BLOCK_V=shape.values, num_warps=4,
        )  # fmt: skip
    return out
