"""Extend attention: chunks of queries over prefix pages and the chunk itself, in one pass.

FlashAttention-2 (Dao 2023, arXiv:2307.08691) over a paged cache. The query heads of a KV head and
neighbouring tokens are packed into one block of rows (row m is token m / group, head m % group), so
a key tile serves all of them. A block reads only the tiles that it may see; tiles wholly below its
first token need no mask. Keys may be wider than values (`layout`).

The grid is flat and depends only on T and B: row b owns as many consecutive programs as it could
have blocks, from program floor(query_start[b] * group / BLOCK_M) + b on, and a program finds its
row by counting the rows that begin at or before it. Programs without a block end at once, so a
captured graph serves any division of its T tokens among B rows. On Hopper, `hopper` computes blocks
of the usual sizes.

The kernel is compiled once per combination of the constexprs (fixed by the model, its dtype and the
size class of T), the type of `rows` (none, int32, int64), and the alignment of q, the caches, `out`
and their strides. Other integers and pointers are not specialised.
"""

# ruff: noqa: PLR0917, D403 - a kernel takes pointers and strides; its docstring is its formula


# mypy: disable-error-code="no-untyped-def"

import torch
import triton
import triton.language as tl
from torch import Tensor

from yaie_kernels.triton.attention import hopper
from yaie_kernels.triton.attention.cache import needs_wide
from yaie_kernels.triton.attention.layout import (
    Layout,
    add_tail,
    layout,
    own_values,
    power_of_2,
    table_of,
)

_SEARCH = tl.constexpr(128)  # rows whose beginnings a program compares at once


@triton.jit
def _load_tile(at, here, in_row, MASKED: tl.constexpr, EVEN_D: tl.constexpr):
    """Load rows `at`[n, BLOCK_D]. Without MASKED all rows exist, with EVEN_D all columns do."""
    if MASKED:
        return tl.load(at, mask=here[:, None] & in_row[None, :], other=0.0)
    if EVEN_D:
        return tl.load(at)
    return tl.load(at, mask=in_row[None, :], other=0.0)


@triton.jit
def _extend_tiles(
    acc, best, total, q, q_tail, own, low, high, length,
    k_ptr, v_ptr, table, scale, softcap, window,
    cache_token_stride, value_token_stride, kv_head, head_dim, value_dim,
    PAGE: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_TAIL: tl.constexpr,
    BLOCK_V: tl.constexpr, VALUES: tl.constexpr, MASKED: tl.constexpr,
    HAS_WINDOW: tl.constexpr, HAS_SOFTCAP: tl.constexpr, EVEN_D: tl.constexpr,
    WIDE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Online softmax (arXiv:1805.02867) over tokens [low, high); `own`: each row's position."""
    col = tl.arange(0, BLOCK_D)
    offset = tl.arange(0, BLOCK_N)
    in_row = kv_head * head_dim + col
    factor = 1.4426950408889634 if HAS_SOFTCAP else scale * 1.4426950408889634
    # page ids are loaded one iteration ahead, because the loads of keys wait for them
    page = tl.load(table + (low + offset) // PAGE, mask=low + offset < length, other=0)
    for start in range(low, high, BLOCK_N):
        token = start + offset
        here = token < length
        slot = (page.to(tl.int64) if WIDE else page) * PAGE + token % PAGE
        base = slot * cache_token_stride
        page = tl.load(table + (token + BLOCK_N) // PAGE, mask=token + BLOCK_N < length, other=0)
        where = base[:, None] + in_row[None, :]
        k = _load_tile(k_ptr + where, here, col < head_dim, MASKED, EVEN_D)
        scores = tl.dot(q, tl.trans(k), input_precision=PRECISION)
        if BLOCK_TAIL:
            scores = add_tail(
                scores, q_tail, k_ptr, base, here, kv_head, head_dim, BLOCK_D, BLOCK_TAIL, PRECISION
            )
        if HAS_SOFTCAP:
            bend = tl.exp2(scores * (scale * 2.8853900817779268 / softcap))
            scores = softcap * (1.0 - 2.0 / (bend + 1.0))
        if MASKED:
            seen = token[None, :] <= own[:, None]
            if HAS_WINDOW:
                seen = seen & (token[None, :] > own[:, None] - window)
            scores = tl.where(seen, scores, float("-inf"))
        peak = tl.maximum(best, tl.max(scores, axis=1))
        # with a window, a row may not have seen any token yet
        level = tl.where(peak == float("-inf"), 0.0, peak) if HAS_WINDOW else peak
        shrink = tl.exp2((best - level) * factor)
        if PRECISION == "ieee":  # subtract first: the difference of rounded products is inexact
            p = tl.exp2((scores - level[:, None]) * factor)
        else:
            p = tl.exp2(scores * factor - (level * factor)[:, None])  # one fused multiply-add
        total = total * shrink + tl.sum(p, axis=1)
        if VALUES == "columns":
            v = k
        elif VALUES == "own":
            v = own_values(v_ptr, slot, here, value_token_stride, kv_head, value_dim, BLOCK_V)
        else:
            v = _load_tile(v_ptr + where, here, col < head_dim, MASKED, EVEN_D)
        acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None], input_precision=PRECISION)
        best = peak
    return acc, best, total


@triton.jit
def _find_block(starts_ptr, batch, group, program, BLOCK_M: tl.constexpr):
    """(row, block in the row) of a program of the flat grid; a row outside [0, batch) has none."""
    offset = tl.arange(0, _SEARCH)
    row = -1
    for base in range(0, batch + 1, _SEARCH):
        index = base + offset
        start = tl.load(starts_ptr + index, mask=index <= batch, other=0)
        first = start * group // BLOCK_M + index
        row += tl.sum(((first <= program) & (index <= batch)).to(tl.int32), axis=0)
    first = tl.load(starts_ptr + row, mask=row >= 0, other=0) * group // BLOCK_M + row
    return row, program - first


@triton.jit(
    do_not_specialize=["window", "table_stride", "batch", "group"],
    do_not_specialize_on_alignment=["tables_ptr", "rows_ptr", "lens_ptr", "starts_ptr"],
)
def _extend_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, tables_ptr, rows_ptr, lens_ptr, starts_ptr,
    scale, softcap, window,
    q_token_stride, q_head_stride, out_token_stride, table_stride,
    cache_token_stride, value_token_stride, batch, group, head_dim, value_dim,
    PAGE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_TAIL: tl.constexpr, BLOCK_V: tl.constexpr, VALUES: tl.constexpr,
    HAS_WINDOW: tl.constexpr, HAS_SOFTCAP: tl.constexpr, EVEN_D: tl.constexpr,
    WIDE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """out = softmax(q k^T, causal) v for BLOCK_M packed rows of one sequence and KV head."""
    kv_head = tl.program_id(0)
    program = tl.num_programs(1) - 1 - tl.program_id(1)  # start a row's longest blocks first
    row, block = _find_block(starts_ptr, batch, group, program, BLOCK_M)
    if (row < 0) | (row == batch):
        return
    first_query = tl.load(starts_ptr + row).to(tl.int64)
    queries = (tl.load(starts_ptr + row + 1) - first_query).to(tl.int32)
    packed_begin = block * BLOCK_M
    length = tl.load(lens_ptr + row)
    if (packed_begin >= queries * group) | (length == 0):
        return
    context = length - queries  # tokens before this chunk

    packed = packed_begin + tl.arange(0, BLOCK_M)
    query = packed // group
    head = kv_head * group + packed % group
    own = context + query
    col = tl.arange(0, BLOCK_D)
    live = (query < queries)[:, None] & (col < head_dim)[None, :]
    at = (first_query + query)[:, None] * q_token_stride + head[:, None] * q_head_stride
    q = tl.load(q_ptr + at + col[None, :], mask=live, other=0.0)
    q_tail = q  # unused without a tail
    if BLOCK_TAIL:
        tail_col = BLOCK_D + tl.arange(0, BLOCK_TAIL)
        tail_live = (query < queries)[:, None] & (tail_col < head_dim)[None, :]
        q_tail = tl.load(q_ptr + at + tail_col[None, :], mask=tail_live, other=0.0)

    low = 0
    own_first = context + packed_begin // group
    own_last = tl.minimum(context + (packed_begin + BLOCK_M - 1) // group, length - 1)
    if HAS_WINDOW:
        low = tl.maximum(own_first - window + 1, 0) // BLOCK_N * BLOCK_N
    open_end = tl.maximum((own_first + 1) // BLOCK_N * BLOCK_N, low)
    best = tl.full([BLOCK_M], float("-inf"), dtype=tl.float32)
    total = tl.zeros([BLOCK_M], dtype=tl.float32)
    acc = tl.zeros([BLOCK_M, BLOCK_V], dtype=tl.float32)
    table = table_of(tables_ptr, rows_ptr, row, table_stride)
    if HAS_WINDOW:
        open_end = low  # every tile may cross the window's edge
    else:
        acc, best, total = _extend_tiles(
            acc, best, total, q, q_tail, own, low, open_end, length,
            k_ptr, v_ptr, table, scale, softcap, window,
            cache_token_stride, value_token_stride, kv_head, head_dim, value_dim,
            PAGE, BLOCK_N, BLOCK_D, BLOCK_TAIL, BLOCK_V, VALUES, False,
            HAS_WINDOW, HAS_SOFTCAP, EVEN_D, WIDE, PRECISION,
        )  # fmt: skip
    acc, best, total = _extend_tiles(
        acc, best, total, q, q_tail, own, open_end, own_last + 1, length,
        k_ptr, v_ptr, table, scale, softcap, window,
        cache_token_stride, value_token_stride, kv_head, head_dim, value_dim,
        PAGE, BLOCK_N, BLOCK_D, BLOCK_TAIL, BLOCK_V, VALUES, True,
        HAS_WINDOW, HAS_SOFTCAP, EVEN_D, WIDE, PRECISION,
    )  # fmt: skip
    at = (first_query + query) * out_token_stride + head * value_dim
    value_col = tl.arange(0, BLOCK_V)
    stored = (query < queries)[:, None] & (value_col < value_dim)[None, :]
    out = acc / tl.where(total > 0, total, 1.0)[:, None]  # rows past the chunk may see no token
    tl.store(out_ptr + at[:, None] + value_col[None, :], out, mask=stored)


def _is_large(tokens: int, group: int) -> bool:
    """Whether to use large tiles; the same for all T that round up to one power of two."""
    return power_of_2(tokens) * group > 64


def _tiles(tokens: int, group: int, shape: Layout, dtype: torch.dtype) -> tuple[int, int, int, int]:
    """(BLOCK_M, BLOCK_N, num_warps, num_stages) for a call of `tokens` queries.

    Size classes end at powers of two, so a call padded to a power of two has the same tiles.
    """
    if dtype == torch.float32:
        return (32, 32, 4, 1) if shape.keys <= 128 else (16, 32, 4, 1)
    few = power_of_2(tokens) * group <= 16
    if shape.keys > 256:  # a latent cache
        return (16, 32, 4, 2) if few else (64, 32, 8, 2)
    if few:
        return 16, 64, 4, 3
    if shape.kind == "own" and not shape.tail:
        # 64 rows with four warps gave wrong results for keys of 40 and values of 24 (triton 3.6,
        # sm_90); such sizes are too rare to optimise
        return 32, 64, 4, 3
    return _large_tiles(shape) if _is_large(tokens, group) else (64, 64, 4, 3)


def _large_tiles(shape: Layout) -> tuple[int, int, int, int]:
    """Tiles of long chunks, as in `_tiles`."""
    if shape.tail:
        return 128, 64, 8, 3
    return (128, 128, 8, 3) if shape.keys <= 128 else (64, 32, 8, 2)


def extend(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_tables: Tensor,
    seq_lens: Tensor,
    query_start: Tensor,
    *,
    scale: float,
    window: int | None,
    softcap: float | None,
    rows: Tensor | None = None,
    out: Tensor | None = None,
    tiles: tuple[int, int, int, int] | None = None,
) -> Tensor:
    """q[T,Hq,D] -> [T,Hq,Dv]; `tiles` overrides the choice, for tuning."""
    tokens, q_heads, head_dim = q.shape
    _, page_size, kv_heads, value_dim = v_cache.shape
    batch = seq_lens.shape[0]
    if out is None:
        out = q.new_empty((tokens, q_heads, value_dim))
    if tokens == 0 or batch == 0:
        return out
    group = q_heads // kv_heads
    if tiles is None and _is_large(tokens, group) and hopper.suits(q, k_cache, v_cache):
        hopper.extend_hopper(
            q, k_cache, v_cache, block_tables, seq_lens, query_start, out,
            scale=scale, window=window, softcap=softcap, rows=rows,
        )  # fmt: skip
        return out
    shape = layout(k_cache, v_cache)
    block_m, block_n, warps, stages = tiles or _tiles(tokens, group, shape, q.dtype)
    _extend_kernel[(kv_heads, tokens * group // block_m + batch)](
        q, k_cache, v_cache, out, block_tables, rows, seq_lens, query_start,
        scale, softcap or 0.0, window or 0,
        q.stride(0), q.stride(1), out.stride(0), block_tables.stride(0),
        k_cache.stride(1), v_cache.stride(1), batch, group, head_dim, value_dim,
        PAGE=page_size, BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_D=shape.keys,
        BLOCK_TAIL=shape.tail, BLOCK_V=shape.values, VALUES=shape.kind,
        HAS_WINDOW=window is not None, HAS_SOFTCAP=softcap is not None,
        EVEN_D=shape.keys <= head_dim, WIDE=needs_wide(k_cache) or needs_wide(v_cache),
        PRECISION="ieee" if q.dtype == torch.float32 else "tf32",
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return out
