"""Balanced decode attention: the tokens of a batch are divided evenly among a fixed number of
programs.

This is the decomposition of Stream-K (Osama et al. 2023, arXiv:2301.03598), applied to decode
attention as in LeanAttention (arXiv:2405.10480); within a program it is an online softmax
(`online`). All sequences' tokens form one line of grains, row after row, and each program of a KV
head takes an equal stretch of the line. It computes its stretch from `seq_lens` on the device, so
the division follows the true lengths, not the bound for which a graph was captured. If a stretch
holds a whole row, the program writes the row's result. If a row crosses the border between two
stretches, each program writes a partial result, and a second kernel combines them. Padding rows
have no grains, so they do not change the division.

If a stretch begins inside a row, the program computes the rest of that row last. So all programs
start at first tokens at about the same time, and a prefix that many rows share is read from memory
once and then found in the L2 cache.
"""

# ruff: noqa: PLR0917, D403 - a kernel takes pointers and strides; its docstring is its formula


# mypy: disable-error-code="no-untyped-def"

import torch
import triton
import triton.language as tl
from torch import Tensor

from yaie_kernels.triton.attention.cache import needs_wide
from yaie_kernels.triton.attention.layout import layout, table_of
from yaie_kernels.triton.attention.online import attend_tokens, load_query, row_extent
from yaie_kernels.triton.launch import at_most, dependent, release_next, wait_previous

_SEARCH = tl.constexpr(256)  # rows whose lengths a program sums at once
_GRAIN = tl.constexpr(16)  # tokens; whole tiles would give some programs up to a tenth more work
_PARTS = tl.constexpr(16)  # partial results combined at once


@triton.jit
def _row_grains(lens_ptr, starts_ptr, row, there, window, HAS_WINDOW: tl.constexpr):
    first, length, _query = row_extent(lens_ptr, starts_ptr, row, there, window, HAS_WINDOW)
    return (length - first + _GRAIN - 1) // _GRAIN


@triton.jit
def _stretch(lens_ptr, starts_ptr, batch, window, program, programs, HAS_WINDOW: tl.constexpr):
    """(begin, end, grains per stretch, row of its first grain, that row's first grain).

    `row_begin` is computed inside the loop: taken from a reduction before it, Triton 3.9 no longer
    infers the alignment of keys, loads them element by element and does not pipeline.
    """
    lane = tl.arange(0, _SEARCH)
    work = 0
    for base in range(0, batch, _SEARCH):
        rows = base + lane
        grains = _row_grains(lens_ptr, starts_ptr, rows, rows < batch, window, HAS_WINDOW)
        work += tl.sum(grains, axis=0)
    share = tl.cdiv(work, programs)
    begin = tl.minimum(program * share, work)
    row, row_begin, before = 0, 0, 0
    for base in range(0, batch, _SEARCH):
        rows = base + lane
        grains = _row_grains(lens_ptr, starts_ptr, rows, rows < batch, window, HAS_WINDOW)
        ends = before + tl.cumsum(grains, axis=0)
        past = (ends <= begin) & (rows < batch)
        row += tl.sum(past.to(tl.int32), axis=0)
        row_begin = tl.maximum(row_begin, tl.max(tl.where(past, ends, 0), axis=0))
        before += tl.sum(grains, axis=0)
    return begin, tl.minimum(begin + share, work), share, row, row_begin


@triton.jit
def _scratch(scratch_ptr, slots, value_dim):
    """Pointers into one buffer: partial results [slots, value_dim], their log-sum-exp (lse)
    [slots], and one int32 pair per program.
    """
    lse_ptr = scratch_ptr + slots * value_dim
    return scratch_ptr, lse_ptr, (lse_ptr + slots).to(tl.pointer_type(tl.int32), bitcast=True)


@triton.jit(
    do_not_specialize=["window", "table_stride", "batch", "group"],
    do_not_specialize_on_alignment=["tables_ptr", "rows_ptr", "lens_ptr", "starts_ptr"],
)
def _balanced_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, scratch_ptr, tables_ptr, rows_ptr, lens_ptr, starts_ptr,
    scale, softcap, window,
    q_token_stride, q_head_stride, out_token_stride, table_stride,
    cache_token_stride, value_token_stride, batch, group, head_dim, value_dim,
    PAGE: tl.constexpr, BLOCK_G: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_TAIL: tl.constexpr, BLOCK_V: tl.constexpr, VALUES: tl.constexpr, BLOCKS: tl.constexpr,
    HAS_WINDOW: tl.constexpr, HAS_SOFTCAP: tl.constexpr,
    EVEN_D: tl.constexpr, WIDE: tl.constexpr, PRECISION: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """out or part = softmax(q k^T) v over a program's tokens of each row in its stretch.

    part[.., program, 0] is for the row that began in an earlier stretch, [.., 1] for the row that
    continues in the next; lse: log2 of the sum of exponentials. split[.., program] = (the row that
    continues, or -1; the last program that has tokens of it).
    """
    release_next(PDL)
    kv_head = tl.program_id(0) // BLOCKS
    program, programs = tl.program_id(1), tl.num_programs(1)
    at, end, share, row, row_begin = _stretch(
        lens_ptr, starts_ptr, batch, window, program, programs, HAS_WINDOW
    )
    mine = tl.program_id(0) * programs + program
    part_ptr, lse_ptr, split_ptr = _scratch(
        scratch_ptr, tl.num_programs(0) * programs * 2 * BLOCK_G, value_dim
    )
    lane = tl.program_id(0) % BLOCKS * BLOCK_G + tl.arange(0, BLOCK_G)
    head = kv_head * group + lane
    value_col = tl.arange(0, BLOCK_V)
    stored = (lane < group)[:, None] & (value_col < value_dim)[None, :]
    factor = 1.4426950408889634 if HAS_SOFTCAP else scale * 1.4426950408889634
    split_row, split_last = -1, 0
    begin, begin_row, begin_row_at = at, row, row_begin
    left = end - begin
    if begin > row_begin:
        first, length, query = row_extent(lens_ptr, starts_ptr, row, True, window, HAS_WINDOW)
        row_begin += (length - first + _GRAIN - 1) // _GRAIN
        at = tl.minimum(row_begin, end)
        row += 1
    while left > 0:
        if at == end:
            at, row, row_begin = begin, begin_row, begin_row_at
        first, length, query = row_extent(lens_ptr, starts_ptr, row, True, window, HAS_WINDOW)
        grains = (length - first + _GRAIN - 1) // _GRAIN
        low, high = at - row_begin, tl.minimum(grains, end - row_begin)
        if high > low:
            q, q_tail = load_query(
                q_ptr, query, head, lane, q_token_stride, q_head_stride, group, head_dim,
                BLOCK_D, BLOCK_TAIL,
            )  # fmt: skip
            acc, best, total = attend_tokens(
                q, q_tail, first + low * _GRAIN, tl.minimum(first + high * _GRAIN, length),
                k_ptr, v_ptr, table_of(tables_ptr, rows_ptr, row, table_stride),
                scale, softcap, factor,
                cache_token_stride, value_token_stride, kv_head, head_dim, value_dim,
                PAGE, BLOCK_G, BLOCK_N, BLOCK_D, BLOCK_TAIL, BLOCK_V, VALUES,
                HAS_SOFTCAP, EVEN_D, WIDE, PRECISION, BLOCK_D <= 64,
            )  # fmt: skip
            result = acc / total[:, None]
            if high - low == grains:
                to = query.to(tl.int64) * out_token_stride + head * value_dim
                tl.store(out_ptr + to[:, None] + value_col[None, :], result, mask=stored)
            else:
                slot = (mine * 2 + (low == 0).to(tl.int32)) * BLOCK_G + tl.arange(0, BLOCK_G)
                part_at = slot.to(tl.int64)[:, None] * value_dim + value_col[None, :]
                tl.store(part_ptr + part_at, result, mask=stored)
                tl.store(lse_ptr + slot, best * factor + tl.log2(total), mask=lane < group)
                if low == 0:
                    split_row, split_last = row, (row_begin + grains - 1) // share
            left -= high - low
        at = row_begin + high
        row_begin += grains
        row += 1
    tl.store(split_ptr + mine * 2, split_row)
    tl.store(split_ptr + mine * 2 + 1, split_last)


@triton.jit(
    do_not_specialize=["group"],
    do_not_specialize_on_alignment=["starts_ptr"],
)
def _combine_kernel(
    scratch_ptr, out_ptr, starts_ptr, out_token_stride, group, value_dim,
    BLOCKS: tl.constexpr, BLOCK_G: tl.constexpr, BLOCK_V: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """out = sum_p part[p] 2**lse[p] / sum_p 2**lse[p] of the row that continues after a program."""
    wait_previous(PDL)
    lane, program, block = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    mine = block * tl.num_programs(1) + program
    part_ptr, lse_ptr, split_ptr = _scratch(
        scratch_ptr, tl.num_programs(1) * tl.num_programs(2) * 2 * BLOCK_G, value_dim
    )
    row = tl.load(split_ptr + mine * 2)
    in_group = block % BLOCKS * BLOCK_G + lane
    if (row < 0) | (in_group >= group):
        return
    parts = tl.load(split_ptr + mine * 2 + 1) - program + 1
    query = tl.load(starts_ptr + row).to(tl.int64)
    col = tl.arange(0, BLOCK_V)
    best = tl.full([], float("-inf"), tl.float32)
    total = tl.zeros([], tl.float32)
    acc = tl.zeros([BLOCK_V], tl.float32)
    for base in range(0, parts, _PARTS):
        part = base + tl.arange(0, _PARTS)
        slot = ((mine + part) * 2 + (part == 0).to(tl.int32)) * BLOCK_G + lane
        lse = tl.load(lse_ptr + slot, mask=part < parts, other=float("-inf"))
        at = slot.to(tl.int64)[:, None] * value_dim + col[None, :]
        mask = (part < parts)[:, None] & (col < value_dim)[None, :]
        values = tl.load(part_ptr + at, mask=mask, other=0.0)
        peak = tl.maximum(best, tl.max(lse, axis=0))
        share = tl.exp2(lse - peak)
        shrink = tl.exp2(best - peak)
        total = total * shrink + tl.sum(share, axis=0)
        acc = acc * shrink + tl.sum(values * share[:, None], axis=0)
        best = peak
    head = block // BLOCKS * group + in_group
    to = out_ptr + query * out_token_stride + head * value_dim
    tl.store(to + col, acc / total, mask=col < value_dim)


def decode_balanced(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_tables: Tensor,
    seq_lens: Tensor,
    query_start: Tensor,
    out: Tensor,
    *,
    scale: float,
    window: int | None,
    softcap: float | None,
    rows: Tensor | None,
    programs: int,
    block_g: int,
    tiles: tuple[int, int, int],
    registers: int | None,
) -> None:
    """q[T,Hq,D] -> out[T,Hq,Dv] with `programs` per KV head (or per block of its query heads).

    tiles: BLOCK_N, num_warps, num_stages; registers: the most that a thread may use.
    """
    _, q_heads, head_dim = q.shape
    _, page_size, kv_heads, value_dim = v_cache.shape
    shape = layout(k_cache, v_cache)
    group = q_heads // kv_heads
    blocks = -(-group // block_g)
    stretches = kv_heads * blocks * programs
    slots = stretches * 2 * block_g
    scratch = torch.empty(
        slots * (value_dim + 1) + stretches * 2, dtype=torch.float32, device=q.device
    )
    block_n, warps, stages = tiles
    overlap = dependent(q)
    _balanced_kernel[(kv_heads * blocks, programs)](
        q, k_cache, v_cache, out, scratch, block_tables, rows, seq_lens, query_start,
        scale, softcap or 0.0, window or 0,
        q.stride(0), q.stride(1), out.stride(0), block_tables.stride(0),
        k_cache.stride(1), v_cache.stride(1), seq_lens.shape[0], group, head_dim, value_dim,
        PAGE=page_size, BLOCK_G=block_g, BLOCK_N=block_n, BLOCK_D=shape.keys,
        BLOCK_TAIL=shape.tail, BLOCK_V=shape.values, VALUES=shape.kind, BLOCKS=blocks,
        HAS_WINDOW=window is not None, HAS_SOFTCAP=softcap is not None,
        EVEN_D=shape.keys <= head_dim, WIDE=needs_wide(k_cache) or needs_wide(v_cache),
        PRECISION="ieee" if q.dtype == torch.float32 else "tf32",
        PDL=overlap["PDL"], num_warps=warps, num_stages=stages, **at_most(registers, q),
    )  # fmt: skip
    _combine_kernel[(min(group, block_g), programs, kv_heads * blocks)](
        scratch, out, query_start, out.stride(0), group, value_dim,
        BLOCKS=blocks, BLOCK_G=block_g, BLOCK_V=shape.values, **overlap, num_warps=1,
    )  # fmt: skip
