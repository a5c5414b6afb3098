"""Extend attention for Hopper in Gluon: loads, products and softmax of a block at the same time.

The work and the grid are those of `extend`; this is how a block is computed where the sizes suit.
One warp fetches: a key tile is BLOCK_N / PAGE copies of a page by the tensor memory accelerator,
which needs no thread to compute addresses. Two warp groups of 64 packed rows each multiply; while
one's softmax keeps the ordinary units busy, the other's products keep the tensor cores so, and
within a group the scores of the next tile are computed during this tile's softmax and values.
Tiles go from the last to the first, so the ones that need a mask come first.

Gluon has no interpreter: off Hopper `extend` computes the same.
"""

# ruff: noqa: PLR0917, D403 - a kernel takes pointers and strides; its docstring is its formula


# mypy: disable-error-code="no-untyped-def, annotation-unchecked"

import torch
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from yaie_kernels.triton.device import is_hopper

BLOCK_M = 128
_HALF = gl.constexpr(64)  # rows of a warp group, and columns of a copy (128 bytes, swizzled)
_SEARCH = gl.constexpr(128)
_load_box = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared  # triton >= 3.9


@gluon.jit
def _find_block(starts_ptr, batch, group, program, BLOCK_M: gl.constexpr):
    """As in `extend`."""
    offset = gl.arange(0, _SEARCH, layout=gl.BlockedLayout([1], [32], [4], [0]))
    row = -1
    for base in range(0, batch + 1, _SEARCH):
        index = base + offset
        start = gl.load(starts_ptr + index, mask=index <= batch, other=0)
        first = start * group // BLOCK_M + index
        row += gl.sum(((first <= program) & (index <= batch)).to(gl.int32), axis=0)
    first = gl.load(starts_ptr + row, mask=row >= 0, other=0) * group // BLOCK_M + row
    return row, program - first


@gluon.jit
def _fetch_tile(desc, ring, turn, pages, column, PAGE: gl.constexpr):
    """Copy the pages of a tile into the ring's next stage, once its last reader has left it."""
    tiles, full, empty = ring
    stage = turn % tiles.shape[0]
    mbarrier.wait(empty.index(stage), turn // tiles.shape[0] & 1 ^ 1)
    mbarrier.expect(full.index(stage), tiles.shape[1] * tiles.shape[2] * 2)
    for j in gl.static_range(tiles.shape[1] // PAGE):
        to = tiles.index(stage).slice(j * PAGE, PAGE, dim=0)
        for part in gl.static_range(tiles.shape[2] // _HALF):
            _load_box(
                desc, [pages[j] * PAGE, column + part * _HALF], full.index(stage),
                to.slice(part * _HALF, _HALF, dim=1),
            )  # fmt: skip


@gluon.jit
def _fetch(
    k_desc, v_desc, keys, values, table, tiles, last, last_page, column, PAGE: gl.constexpr
):  # fmt: skip
    """The fetching warp: tiles last, last - 1, .. of keys and values."""
    PAGES: gl.constexpr = keys[0].shape[1] // PAGE
    for turn in range(tiles):
        pages = ()
        for j in gl.static_range(PAGES):
            page = gl.load(table + gl.minimum((last - turn) * PAGES + j, last_page))
            # the compiler knows no starred expression
            pages = pages + (page,)  # type: ignore[assignment]  # noqa: RUF005
        _fetch_tile(k_desc, keys, turn, pages, column, PAGE)
        _fetch_tile(v_desc, values, turn, pages, column, PAGE)


@gluon.jit
def _wait_full(ring, turn):
    """The tile of a turn, when it has arrived."""
    tiles, full, _empty = ring
    stage = turn % tiles.shape[0]
    mbarrier.wait(full.index(stage), turn // tiles.shape[0] & 1)
    return tiles.index(stage)


@gluon.jit
def _leave(ring, turn):
    tiles, _full, empty = ring
    mbarrier.arrive(empty.index(turn % tiles.shape[0]), count=1)


@gluon.jit
def _score(q_tile, keys, turn):
    """Begin q k^T of a turn."""
    k = _wait_full(keys, turn)
    BLOCK_N: gl.constexpr = k.shape[0]
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    nothing = gl.zeros([_HALF, BLOCK_N], gl.float32, LAYOUT)
    return warpgroup_mma(q_tile, k.permute((1, 0)), nothing, use_acc=False, is_async=True)


@gluon.jit
def _softmax(scores, best, total, factor, BLIND: gl.constexpr):
    """(shares, best, total, factor of what was summed before); BLIND: a row may see nothing."""
    peak = gl.maximum(best, gl.max(scores, axis=1))
    level = gl.where(peak == float("-inf"), 0.0, peak) if BLIND else peak
    shrink = gl.exp2((best - level) * factor)
    p = gl.exp2(scores * factor - gl.expand_dims(level * factor, 1))
    return p, peak, total * shrink + gl.sum(p, axis=1), shrink


@gluon.jit
def _bend(scores, scale, softcap, HAS_SOFTCAP: gl.constexpr):
    if HAS_SOFTCAP:
        bend = gl.exp2(scores * (scale * 2.8853900817779268 / softcap))
        scores = softcap * (1.0 - 2.0 / (bend + 1.0))
    return scores


@gluon.jit
def _rescale(acc, shrink):
    return acc * gl.expand_dims(gl.convert_layout(shrink, gl.SliceLayout(1, acc.type.layout)), 1)


@gluon.jit
def _operand(p, acc, dtype: gl.constexpr):
    """Shares as the left side of a product whose sums are laid out as acc."""
    return gl.convert_layout(p.to(dtype), gl.DotOperandLayout(0, acc.type.layout, 2))


@gluon.jit
def _clear_stale(v, tokens, ROWS: gl.constexpr):
    """Zero the rows from `tokens` on: 0 * NaN would be NaN. Both warp groups write the same."""
    at = gl.arange(0, v.shape[0], layout=gl.SliceLayout(1, ROWS))
    kept = v.load(ROWS)
    v.store(gl.where(gl.expand_dims(at < tokens, 1), kept, gl.zeros_like(kept)))
    fence_async_shared()


@gluon.jit
def _see(scores, first, own, window, HAS_WINDOW: gl.constexpr):
    """Scores of the tile that begins at token `first` as the rows at positions `own` see them."""
    token = first + gl.arange(0, scores.shape[1], layout=gl.SliceLayout(0, scores.type.layout))
    seen = gl.expand_dims(token, 0) <= gl.expand_dims(own, 1)
    if HAS_WINDOW:
        seen = seen & (gl.expand_dims(token, 0) > gl.expand_dims(own - window, 1))
    return gl.where(seen, scores, float("-inf"))


@gluon.jit
def _masked_tiles(
    acc, best, total, q_tile, keys, values, begin, end, last, own, length,
    scale, softcap, window, factor,
    HAS_WINDOW: gl.constexpr, HAS_SOFTCAP: gl.constexpr, ROWS: gl.constexpr,
):  # fmt: skip
    """Online softmax over the tiles of the turns [begin, end), `own` being each row's position."""
    BLOCK_N: gl.constexpr = keys[0].shape[1]
    for turn in range(begin, end):
        scores = warpgroup_mma_wait(0, deps=[_score(q_tile, keys, turn)])
        _leave(keys, turn)
        first = (last - turn) * BLOCK_N
        scores = _bend(scores, scale, softcap, HAS_SOFTCAP)
        scores = _see(scores, first, own, window, HAS_WINDOW)
        p, best, total, shrink = _softmax(scores, best, total, factor, True)
        v = _wait_full(values, turn)
        if first + BLOCK_N > length:
            _clear_stale(v, length - first, ROWS)
        acc = _rescale(acc, shrink)
        acc = warpgroup_mma(_operand(p, acc, q_tile.dtype), v, acc, is_async=True)
        acc = warpgroup_mma_wait(0, deps=[acc])
        _leave(values, turn)
    return acc, best, total


@gluon.jit
def _open_tiles(
    acc, best, total, q_tile, keys, values, begin, end, last, own, length,
    scale, softcap, window, factor,
    HAS_WINDOW: gl.constexpr, HAS_SOFTCAP: gl.constexpr, ROWS: gl.constexpr,
):  # fmt: skip
    """The same where every row sees all tiles but the first: the next scores are computed during
    a softmax.
    """
    BLOCK_N: gl.constexpr = keys[0].shape[1]
    scores = warpgroup_mma_wait(0, deps=[_score(q_tile, keys, begin)])
    _leave(keys, begin)
    first = (last - begin) * BLOCK_N
    scores = _bend(scores, scale, softcap, HAS_SOFTCAP)
    scores = _see(scores, first, own, window, HAS_WINDOW)
    p, best, total, shrink = _softmax(scores, best, total, factor, True)
    acc = _rescale(acc, shrink)
    shares = _operand(p, acc, q_tile.dtype)
    v = _wait_full(values, begin)
    if first + BLOCK_N > length:
        _clear_stale(v, length - first, ROWS)
    for turn in range(begin + 1, end):
        coming = _score(q_tile, keys, turn)
        v = _wait_full(values, turn - 1)
        summing = warpgroup_mma(shares, v, acc, is_async=True)
        scores = warpgroup_mma_wait(1, deps=[coming])
        _leave(keys, turn)
        scores = _bend(scores, scale, softcap, HAS_SOFTCAP)
        p, best, total, shrink = _softmax(scores, best, total, factor, False)
        acc = warpgroup_mma_wait(0, deps=[summing])
        _leave(values, turn - 1)
        acc = _rescale(acc, shrink)
        shares = _operand(p, acc, q_tile.dtype)
    acc = warpgroup_mma(shares, _wait_full(values, end - 1), acc, is_async=True)
    acc = warpgroup_mma_wait(0, deps=[acc])
    _leave(values, end - 1)
    return acc, best, total


@gluon.jit
def _attend(
    q_ptr, out_ptr, q_tile, keys, values, scale, softcap, window,
    q_token_stride, q_head_stride, out_token_stride, first_query, queries, packed_begin,
    kv_head, group, length, tiles, last, masked, edge,
    HAS_WINDOW: gl.constexpr, HAS_SOFTCAP: gl.constexpr,
):  # fmt: skip
    """A warp group: 64 packed rows over all tiles; all but turns (masked, edge) need a mask."""
    HEAD: gl.constexpr = q_tile.shape[1]
    BLOCK_N: gl.constexpr = keys[0].shape[1]
    ROWS: gl.constexpr = gl.BlockedLayout([1, 8], [256 // HEAD, HEAD // 8], [4, 1], [1, 0])
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HEAD, 16])
    packed = packed_begin + gl.arange(0, _HALF, layout=gl.SliceLayout(1, ROWS))
    at = (first_query + packed // group) * q_token_stride
    at += (kv_head * group + packed % group) * q_head_stride
    col = gl.arange(0, HEAD, layout=gl.SliceLayout(0, ROWS))
    live = gl.expand_dims(packed < queries * group, 1)
    q_at = q_ptr + gl.expand_dims(at, 1) + gl.expand_dims(col, 0)
    q_tile.store(gl.load(q_at, mask=live, other=0.0))
    fence_async_shared()

    factor = 1.4426950408889634 if HAS_SOFTCAP else scale * 1.4426950408889634
    row = packed_begin + gl.arange(0, _HALF, layout=gl.SliceLayout(1, SCORES))
    own = length - queries + row // group
    best = gl.full([_HALF], float("-inf"), gl.float32, layout=gl.SliceLayout(1, SCORES))
    total = gl.zeros([_HALF], gl.float32, layout=gl.SliceLayout(1, SCORES))
    acc = gl.zeros([_HALF, HEAD], gl.float32, layout=SUMS)
    acc, best, total = _masked_tiles(
        acc, best, total, q_tile, keys, values, 0, masked, last, own, length,
        scale, softcap, window, factor, HAS_WINDOW, HAS_SOFTCAP, ROWS,
    )  # fmt: skip
    acc, best, total = _open_tiles(
        acc, best, total, q_tile, keys, values, masked, edge, last, own, length,
        scale, softcap, window, factor, HAS_WINDOW, HAS_SOFTCAP, ROWS,
    )  # fmt: skip
    if HAS_WINDOW:
        acc, best, total = _masked_tiles(
            acc, best, total, q_tile, keys, values, edge, tiles, last, own, length,
            scale, softcap, window, factor, HAS_WINDOW, HAS_SOFTCAP, ROWS,
        )  # fmt: skip
    out = _rescale(acc, 1.0 / gl.where(total > 0, total, 1.0))
    packed = packed_begin + gl.arange(0, _HALF, layout=gl.SliceLayout(1, SUMS))
    at = (first_query + packed // group) * out_token_stride
    at += (kv_head * group + packed % group) * HEAD
    col = gl.arange(0, HEAD, layout=gl.SliceLayout(0, SUMS))
    live = gl.expand_dims(packed < queries * group, 1)
    out_at = out_ptr + gl.expand_dims(at, 1) + gl.expand_dims(col, 0)
    gl.store(out_at, out.to(q_tile.dtype), mask=live)


@gluon.jit
def _ring(dtype: gl.constexpr, STAGES: gl.constexpr, ROWS: gl.constexpr, HEAD: gl.constexpr):
    """(tiles [STAGES, ROWS, HEAD], their "full" and "empty" barriers)."""
    LAYOUT: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    tiles = gl.allocate_shared_memory(dtype, [STAGES, ROWS, HEAD], LAYOUT)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=2)
    return tiles, full, empty


@gluon.jit(
    do_not_specialize=["window", "table_stride", "batch", "group"],
    do_not_specialize_on_alignment=["tables_ptr", "rows_ptr", "lens_ptr", "starts_ptr"],
)
def _hopper_kernel(
    q_ptr, k_desc, v_desc, out_ptr, tables_ptr, rows_ptr, lens_ptr, starts_ptr,
    scale, softcap, window,
    q_token_stride, q_head_stride, out_token_stride, table_stride, batch, group,
    PAGE: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, HEAD: gl.constexpr,
    STAGES: gl.constexpr, HAS_WINDOW: gl.constexpr, HAS_SOFTCAP: gl.constexpr,
):  # fmt: skip
    """out = softmax(q k^T, causal) v for BLOCK_M packed rows of one sequence and KV head."""
    kv_head = gl.program_id(0)
    program = gl.num_programs(1) - 1 - gl.program_id(1)  # a row's longest blocks first
    row, block = _find_block(starts_ptr, batch, group, program, BLOCK_M)
    if (row < 0) | (row == batch):
        return
    first_query = gl.load(starts_ptr + row).to(gl.int64)
    queries = (gl.load(starts_ptr + row + 1) - first_query).to(gl.int32)
    length = gl.load(lens_ptr + row)
    packed_begin = block * BLOCK_M
    if (packed_begin >= queries * group) | (length == 0):
        return
    line = row if rows_ptr is None else gl.load(rows_ptr + row)
    table = tables_ptr + line.to(gl.int64) * table_stride

    own_first = length - queries + packed_begin // group
    own_last = gl.minimum(length - queries + (packed_begin + BLOCK_M - 1) // group, length - 1)
    last = own_last // BLOCK_N
    tiles = last + 1
    masked = gl.maximum(tiles - (own_first + 1) // BLOCK_N, 1) - 1
    edge = tiles
    if HAS_WINDOW:
        all_see = gl.cdiv(gl.maximum(own_last - window + 1, 0), BLOCK_N)  # the first such tile
        edge = tiles - all_see
        tiles = tiles - gl.maximum(own_first - window + 1, 0) // BLOCK_N
        masked = gl.minimum(masked, tiles - 1)
        edge = gl.maximum(masked + 1, gl.minimum(edge, tiles))

    DTYPE: gl.constexpr = q_ptr.dtype.element_ty
    q_tiles = gl.allocate_shared_memory(
        DTYPE, [BLOCK_M // _HALF, _HALF, HEAD], gl.NVMMASharedLayout(128, 16, 2)
    )
    keys = _ring(DTYPE, STAGES, BLOCK_N, HEAD)
    values = _ring(DTYPE, STAGES, BLOCK_N, HEAD)
    fence_async_shared()
    half = packed_begin + _HALF
    gl.warp_specialize(
        [
            (_attend, (
                q_ptr, out_ptr, q_tiles.index(0), keys, values, scale, softcap, window,
                q_token_stride, q_head_stride, out_token_stride, first_query, queries, packed_begin,
                kv_head, group, length, tiles, last, masked, edge, HAS_WINDOW, HAS_SOFTCAP,
            )),
            (_attend, (
                q_ptr, out_ptr, q_tiles.index(1), keys, values, scale, softcap, window,
                q_token_stride, q_head_stride, out_token_stride, first_query, queries, half,
                kv_head, group, length, tiles, last, masked, edge, HAS_WINDOW, HAS_SOFTCAP,
            )),
            (_fetch, (
                k_desc, v_desc, keys, values, table, tiles, last, (length - 1) // PAGE,
                kv_head * HEAD, PAGE,
            )),
        ],
        [4, 1],  # warps of the second group and of the fetching one
        [240, 24],  # their registers
    )  # fmt: skip


_BOX = gl.NVMMASharedLayout(128, 16, 2)
_TILES = {64: (128, 3), 128: (128, 2), 256: (64, 2)}  # head size -> (BLOCK_N, STAGES)


def suits(q: Tensor, k_cache: Tensor, v_cache: Tensor) -> bool:
    """Whether the sizes, types and device are those of this kernel."""
    page_size, head = k_cache.shape[1], k_cache.shape[3]
    return (
        q.dtype in {torch.bfloat16, torch.float16}
        and head in _TILES
        and page_size % 8 == 0  # rows of a swizzled block
        and _TILES[head][0] % page_size == 0
        and k_cache.shape == v_cache.shape
        and k_cache.is_contiguous()
        and v_cache.is_contiguous()
        and is_hopper(q.device)
    )


def extend_hopper(
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
    tiles: tuple[int, int] | None = None,
) -> None:
    """q[T,Hq,D] -> out[T,Hq,D] where the arguments suit; `tiles` overrides the choice."""
    pages, page_size, kv_heads, head = k_cache.shape
    batch = seq_lens.shape[0]
    group = q.shape[1] // kv_heads
    block_n, stages = tiles or _TILES[head]
    shape, strides = [pages * page_size, kv_heads * head], [kv_heads * head, 1]
    k_desc, v_desc = (
        TensorDescriptor(cache, shape, strides, [page_size, _HALF.value], _BOX)
        for cache in (k_cache, v_cache)
    )
    _hopper_kernel[(kv_heads, q.shape[0] * group // BLOCK_M + batch)](
        q, k_desc, v_desc, out, block_tables, rows, seq_lens, query_start,
        scale, softcap or 0.0, window or 0,
        q.stride(0), q.stride(1), out.stride(0), block_tables.stride(0), batch, group,
        PAGE=page_size, BLOCK_M=BLOCK_M, BLOCK_N=block_n, HEAD=head, STAGES=stages,
        HAS_WINDOW=window is not None, HAS_SOFTCAP=softcap is not None, num_warps=4,
    )  # fmt: skip
