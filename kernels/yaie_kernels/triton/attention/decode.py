"""Decode attention: one query per sequence; several programs share a sequence's tokens.

The query heads of a KV head form one block of rows (or a few blocks, if a latent cache serves a
hundred heads), so each key and value is read once. Keys may be wider than values (`layout`).

Batches of medium size are balanced by their true lengths (`balanced`); the largest have enough rows
without it. In small batches `splits` programs share a sequence's tokens and a second kernel reduces
their results, as in Flash-Decoding (Dao et al. 2023), which starts sooner than balancing. The host
chooses the number of splits from the batch size and an upper bound of the lengths; the kernel
divides by the true length. Rows of length 0 or without a query are padding: nothing of them is
read or written.

The kernel is compiled once per combination of the constexprs, the type of `rows` (none, int32,
int64), and the alignment of q, the caches, `out` and their strides, as in `extend`.
"""

# ruff: noqa: PLR0917, D403 - a kernel takes pointers and strides; its docstring is its formula


# mypy: disable-error-code="no-untyped-def"

import functools
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from yaie_kernels.triton.attention.balanced import decode_balanced
from yaie_kernels.triton.attention.cache import needs_wide
from yaie_kernels.triton.attention.layout import Layout, layout, power_of_2, table_of
from yaie_kernels.triton.attention.online import attend_tokens, load_query, row_extent
from yaie_kernels.triton.device import multiprocessors, registers_of
from yaie_kernels.triton.launch import dependent, release_next, wait_previous

_EACH = 2  # programs per multiprocessor: with more splits bandwidth falls (measured, H200)
_LEAST_TOKENS = 128  # smallest share of a program (1,000 tokens: 17 splits 6.2 us, 33 splits 8.1)
_LEAST_LATENT = 64  # the same for a latent cache
_MOST_TOKENS = 2048  # with longer shares the whole batch waits for one long sequence
_MAX_SPLITS = 64
_FEW_SPLITS = (
    16  # the reduction has two sizes, so that warming up compiles all that a step may need
)
_SELF_BALANCED = 4096  # rows times KV heads; with so many, balancing gains nothing (H200: 512 rows
# take 482 us unsplit and 490 us balanced)


@triton.jit(
    do_not_specialize=["window", "table_stride", "group", "splits", "wanted"],
    do_not_specialize_on_alignment=["tables_ptr", "rows_ptr", "lens_ptr", "starts_ptr"],
)
def _decode_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, part_ptr, tables_ptr, rows_ptr, lens_ptr, starts_ptr,
    scale, softcap, window,
    q_token_stride, q_head_stride, out_token_stride, table_stride,
    cache_token_stride, value_token_stride, group, head_dim, value_dim, splits, wanted,
    PAGE: tl.constexpr, BLOCK_G: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_TAIL: tl.constexpr, BLOCK_V: tl.constexpr, VALUES: tl.constexpr, BLOCKS: tl.constexpr,
    HAS_WINDOW: tl.constexpr, HAS_SOFTCAP: tl.constexpr, SPLIT: tl.constexpr,
    EVEN_D: tl.constexpr, WIDE: tl.constexpr, MOST: tl.constexpr, PRECISION: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """part = softmax(q k^T) v over this program's tokens; the buffer's end holds each part's lse,
    log2 of the sum of exponentials.
    """
    release_next(PDL)
    kv_head = tl.program_id(0) // BLOCKS
    row = tl.program_id(1)
    split = tl.program_id(2)
    first, length, query = row_extent(lens_ptr, starts_ptr, row, True, window, HAS_WINDOW)
    if length == 0:
        return
    begin, end = first, length
    if SPLIT:
        share = tl.minimum(tl.cdiv(length - first, wanted), MOST)
        share = tl.maximum(share, tl.cdiv(length - first, splits))
        share = tl.cdiv(share, BLOCK_N) * BLOCK_N
        begin = first + split * share
        end = tl.minimum(begin + share, length)
    lane = tl.program_id(0) % BLOCKS * BLOCK_G + tl.arange(0, BLOCK_G)
    head = kv_head * group + lane
    q, q_tail = load_query(
        q_ptr, query, head, lane, q_token_stride, q_head_stride, group, head_dim,
        BLOCK_D, BLOCK_TAIL,
    )  # fmt: skip
    factor = 1.4426950408889634 if HAS_SOFTCAP else scale * 1.4426950408889634
    acc, best, total = attend_tokens(
        q, q_tail, begin, end,
        k_ptr, v_ptr, table_of(tables_ptr, rows_ptr, row, table_stride), scale, softcap, factor,
        cache_token_stride, value_token_stride, kv_head, head_dim, value_dim,
        PAGE, BLOCK_G, BLOCK_N, BLOCK_D, BLOCK_TAIL, BLOCK_V, VALUES,
        HAS_SOFTCAP, EVEN_D, WIDE, PRECISION, BLOCK_D <= 256,
    )  # fmt: skip
    col = tl.arange(0, BLOCK_V)
    stored = (lane < group)[:, None] & (col < value_dim)[None, :]
    some = tl.where(total > 0, total, 1.0)  # the last splits of a short sequence are empty
    result = acc / some[:, None]
    if SPLIT:
        q_heads = tl.num_programs(0) // BLOCKS * group
        at = (row.to(tl.int64) * q_heads + head) * splits + split
        tl.store(part_ptr + at[:, None] * value_dim + col[None, :], result, mask=stored)
        lse = tl.where(total > 0, best * factor + tl.log2(some), float("-inf"))
        parts = tl.num_programs(1).to(tl.int64) * q_heads * splits
        tl.store(part_ptr + parts * value_dim + at, lse, mask=lane < group)
    else:
        at = query.to(tl.int64) * out_token_stride + head * value_dim
        tl.store(out_ptr + at[:, None] + col[None, :], result, mask=stored)


@triton.jit(
    do_not_specialize=["splits"],
    do_not_specialize_on_alignment=["lens_ptr", "starts_ptr"],
)
def _reduce_kernel(
    part_ptr, out_ptr, lens_ptr, starts_ptr, out_token_stride, value_dim, splits,
    BLOCK_S: tl.constexpr, BLOCK_V: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """out = sum_s part[s] 2**lse[s] / sum_s 2**lse[s]; empty splits have lse -inf.

    The parts of a padding row hold arbitrary values, which are read and discarded: a branch before
    the reads would wait for the row's length.
    """
    wait_previous(PDL)
    head, row = tl.program_id(0), tl.program_id(1)
    _first, length, query = row_extent(lens_ptr, starts_ptr, row, True, 0, False)
    at = (row.to(tl.int64) * tl.num_programs(0) + head) * splits
    lse_ptr = part_ptr + tl.num_programs(1).to(tl.int64) * tl.num_programs(0) * splits * value_dim
    split = tl.arange(0, BLOCK_S)
    col = tl.arange(0, BLOCK_V)
    lse = tl.load(lse_ptr + at + split, mask=split < splits, other=float("-inf"))
    lse = tl.where(length > 0, lse, 0.0)
    share = tl.exp2(lse - tl.max(lse, axis=0))
    mask = (split < splits)[:, None] & (col < value_dim)[None, :]
    part = tl.load(
        part_ptr + (at + split)[:, None] * value_dim + col[None, :], mask=mask, other=0.0
    )
    part = tl.where(length > 0, part, 0.0)
    out = tl.sum(part * share[:, None], axis=0) / tl.sum(share, axis=0)
    to = out_ptr + query.to(tl.int64) * out_token_stride + head * value_dim
    if length > 0:
        tl.store(to + col, out, mask=col < value_dim)


class Choice(NamedTuple):
    """How the work of a decode step is divided."""

    block_g: int  # query heads per program
    tiles: tuple[int, int, int]  # BLOCK_N, num_warps, num_stages
    programs: int = 0  # balanced programs per block of heads; 0: not balanced, use `splits`
    registers: int | None = None  # limit per thread, so that enough programs are resident
    splits: int = 1  # programs per row
    wanted: int = 1  # splits used as long as no share exceeds _MOST_TOKENS


def choose(
    batch: int,
    heads: tuple[int, int],
    max_tokens: int,
    shape: Layout,
    dtype: torch.dtype,
    device: torch.device,
) -> Choice:
    """Choose for `heads` = (KV heads, query heads per KV head) and rows of up to max_tokens."""
    tiles = _tiles(heads[1], shape, dtype)
    blocks = heads[0] * -(-heads[1] // tiles.block_g)
    count = multiprocessors(device)
    if batch * blocks < _SELF_BALANCED:
        each = max((each for least, each in tiles.each if least <= batch * blocks), default=0)
        if each:
            return Choice(
                tiles.block_g,
                tiles.balanced,
                programs=max(1, each * count // blocks),
                registers=registers_of(each, tiles.balanced[1]),
            )
    most = None  # latent cache: two waves of small programs, one of large ones (measured)
    if shape.keys > 256:
        most = count * (_EACH if tiles.block_g < 64 else 1)
    splits, wanted = choose_splits(batch * blocks, max_tokens, count * _EACH, most)
    return Choice(tiles.block_g, tiles.split, splits=splits, wanted=wanted)


def choose_splits(
    rows: int, max_tokens: int, filling: int, most: int | None = None
) -> tuple[int, int]:
    """(splits, wanted) of `rows` = sequences times blocks of heads, as in `Choice`.

    Enough splits to reach `filling`, the programs of a full GPU, and more if a sequence is so long
    that it needs them. `most`: limit of all programs together, for programs so large that one more
    than fit at once costs another wave.
    """
    share = -(-filling // rows) if most is None else most // rows
    useful = -(-max_tokens // (_LEAST_TOKENS if most is None else _LEAST_LATENT))
    wanted = max(1, min(share, useful, _MAX_SPLITS))
    longest = min(-(-max_tokens // _MOST_TOKENS), _MAX_SPLITS)
    return max(wanted, longest), wanted


class _Tiles(NamedTuple):
    """Tiles for rows of one shape, as (BLOCK_N, num_warps, num_stages).

    each: pairs (rows times blocks of heads, balanced programs per multiprocessor from that number
    on); these programs share the multiprocessor's registers. (256 sequences on an H200, heads of
    128: four programs of 128 registers make 26,200 tokens/s, three of 168 make 25,000; a fourth
    that does not fit is a second wave: 22,000.)
    """

    block_g: int
    split: tuple[int, int, int]
    balanced: tuple[int, int, int] = (64, 4, 3)
    each: tuple[tuple[int, int], ...] = ()


@functools.cache
def _tiles(group: int, shape: Layout, dtype: torch.dtype) -> _Tiles:
    most = group
    if shape.values > 256:  # the sums of more heads do not fit in the registers
        most = 16 if dtype == torch.float32 else 64
    block_g = max(16, power_of_2(min(group, most)))
    if shape.keys > 256:
        latent = (64, 4 if block_g < 64 else 8, 2)
        return _Tiles(block_g, (16, 4, 1) if dtype == torch.float32 else latent)
    if dtype == torch.float32:
        return _Tiles(block_g, (32, 4, 2), (32, 4, 2), ((1024, 2),))
    if shape.keys > 128:
        return _Tiles(block_g, (32, 4, 3), (64, 4, 2), ((1024, 2),))
    if shape.keys > 64:
        return _Tiles(block_g, (64, 4, 3), (64, 4, 2), ((128, 4),))
    return _Tiles(block_g, (64, 4, 3), (64, 4, 3), ((512, 4),))


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
    choice: Choice | None = None,
) -> Tensor:
    """q[T,Hq,D] -> [T,Hq,Dv]; `choice` overrides that of `choose`, for tuning."""
    tokens, q_heads, head_dim = q.shape
    _, page_size, kv_heads, value_dim = v_cache.shape
    batch = seq_lens.shape[0]
    if out is None:
        out = q.new_empty((tokens, q_heads, value_dim))
    if batch == 0:
        return out
    shape = layout(k_cache, v_cache)
    group = q_heads // kv_heads
    if choice is None:
        reach = max_seq_len if window is None else min(window, max_seq_len)
        choice = choose(batch, (kv_heads, group), reach, shape, q.dtype, q.device)
    if choice.programs:
        decode_balanced(
            q, k_cache, v_cache, block_tables, seq_lens, query_start, out,
            scale=scale, window=window, softcap=softcap, rows=rows,
            programs=choice.programs, block_g=choice.block_g, tiles=choice.tiles,
            registers=choice.registers,
        )  # fmt: skip
        return out
    block_g, (block_n, warps, stages), splits = choice.block_g, choice.tiles, choice.splits
    blocks = -(-group // block_g)
    overlap = dependent(q)
    part = out  # an unused pointer when nothing is split
    if splits > 1:
        part = torch.empty(
            batch * q_heads * splits * (value_dim + 1), dtype=torch.float32, device=q.device
        )
    _decode_kernel[(kv_heads * blocks, batch, splits)](
        q, k_cache, v_cache, out, part, block_tables, rows, seq_lens, query_start,
        scale, softcap or 0.0, window or 0,
        q.stride(0), q.stride(1), out.stride(0), block_tables.stride(0),
        k_cache.stride(1), v_cache.stride(1), group, head_dim, value_dim, splits, choice.wanted,
        PAGE=page_size, BLOCK_G=block_g, BLOCK_N=block_n, BLOCK_D=shape.keys,
        BLOCK_TAIL=shape.tail, BLOCK_V=shape.values, VALUES=shape.kind, BLOCKS=blocks,
        HAS_WINDOW=window is not None, HAS_SOFTCAP=softcap is not None, SPLIT=splits > 1,
        EVEN_D=shape.keys <= head_dim, MOST=_MOST_TOKENS,
        WIDE=needs_wide(k_cache) or needs_wide(v_cache),
        PRECISION="ieee" if q.dtype == torch.float32 else "tf32",
        PDL=overlap["PDL"], num_warps=warps, num_stages=stages,
    )  # fmt: skip
    if splits > 1:
        _reduce_kernel[(q_heads, batch)](
            part, out, seq_lens, query_start, out.stride(0), value_dim, splits,
            BLOCK_S=_FEW_SPLITS if splits <= _FEW_SPLITS else _MAX_SPLITS,
            BLOCK_V=shape.values, **overlap, num_warps=4,
        )  # fmt: skip
    return out
