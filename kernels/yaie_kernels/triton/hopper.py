"""Extend attention for Hopper in Gluon: loads, products and softmax of a block at the same time.

The work is cut into the blocks of `extend`, flat and by T and B alone; a program stays on each
multiprocessor and takes block after block, so one's end overlaps the next one's beginning.
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

from yaie_kernels.triton.device import is_hopper, multiprocessors

BLOCK_M = 128
_HALF = gl.constexpr(64)  # rows of a warp group, and columns of a copy (128 bytes, swizzled)
_SEARCH = gl.constexpr(128)
_REGISTERS = gl.constexpr(240)  # of a thread; the groups' and the fetching warp's make 504
_FETCH_REGISTERS = gl.constexpr(24)
_load_box = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared  # triton >= 3.9


@gluon.jit
def _find_block(starts_ptr, batch, group, program, BLOCK_M: gl.constexpr, WARPS: gl.constexpr):
    """As in `extend`, among programs of one KV head."""
    offset = gl.arange(0, _SEARCH, layout=gl.BlockedLayout([1], [32], [WARPS], [0]))
    row = -1
    for base in range(0, batch + 1, _SEARCH):
        index = base + offset
        start = gl.load(starts_ptr + index, mask=index <= batch, other=0)
        first = start * group // BLOCK_M + index
        row += gl.sum(((first <= program) & (index <= batch)).to(gl.int32), axis=0)
    first = gl.load(starts_ptr + row, mask=row >= 0, other=0) * group // BLOCK_M + row
    return row, program - first


@gluon.jit
def _block(
    round_, me, programs, kv_heads, lens_ptr, starts_ptr, batch, group, window,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, HAS_WINDOW: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    """What a resident program does in a round: a block of BLOCK_M packed rows of a KV head.

    Long blocks come first, and the order of the programs turns about, so all get about the same.
    -> (row, KV head, first of its queries, their number, length, first packed row, the last tile,
    number of tiles, of which the turns [0, masked) and [edge, tiles) need a mask); no tiles where
    there is no work.
    """
    resident = gl.num_programs(0)
    item = round_ * resident + (me if round_ % 2 == 0 else resident - 1 - me)
    program = programs - 1 - item // kv_heads
    row, block = _find_block(starts_ptr, batch, group, program, BLOCK_M, WARPS)
    there = (row >= 0) & (row < batch)
    first_query = gl.load(starts_ptr + row, mask=there, other=0)
    queries = gl.load(starts_ptr + row + 1, mask=there, other=0) - first_query
    length = gl.load(lens_ptr + row, mask=there, other=0)
    begin = block * BLOCK_M
    own_first = length - queries + begin // group
    own_last = gl.minimum(length - queries + (begin + BLOCK_M - 1) // group, length - 1)
    last = own_last // BLOCK_N
    tiles = last + 1
    masked = tiles - (own_first + 1) // BLOCK_N
    edge = tiles
    if HAS_WINDOW:
        edge = tiles - gl.cdiv(gl.maximum(own_last - window + 1, 0), BLOCK_N)
        tiles = tiles - gl.maximum(own_first - window + 1, 0) // BLOCK_N
        masked = gl.minimum(masked, tiles)
        edge = gl.maximum(masked, gl.minimum(edge, tiles))
    tiles = gl.where((begin < queries * group) & (length > 0), tiles, 0)
    kv_head = item % kv_heads
    return row, kv_head, first_query, queries, length, begin, last, tiles, masked, edge


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
    k_desc, v_desc, keys, values, tables_ptr, rows_ptr, table_stride,
    me, rounds, programs, kv_heads, lens_ptr, starts_ptr, batch, group, window,
    PAGE: gl.constexpr, BLOCK_M: gl.constexpr, HAS_WINDOW: gl.constexpr,
):  # fmt: skip
    """The fetching warp: of each block the tiles last, last - 1, .. of keys and values."""
    BLOCK_N: gl.constexpr = keys[0].shape[1]
    HEAD: gl.constexpr = keys[0].shape[2]
    PAGES: gl.constexpr = BLOCK_N // PAGE
    turn = 0
    for round_ in range(rounds):
        row, kv_head, _query, _queries, length, _begin, last, tiles, _masked, _edge = _block(
            round_, me, programs, kv_heads, lens_ptr, starts_ptr, batch, group, window,
            BLOCK_M, BLOCK_N, HAS_WINDOW, 1,
        )  # fmt: skip
        if tiles > 0:
            line = row if rows_ptr is None else gl.load(rows_ptr + row)
            table = tables_ptr + line.to(gl.int64) * table_stride
            last_page = (length - 1) // PAGE
            for tile in range(last, last - tiles, -1):
                pages = ()
                for j in gl.static_range(PAGES):
                    page = gl.load(table + gl.minimum(tile * PAGES + j, last_page))
                    # the compiler knows no starred expression
                    pages = pages + (page,)  # type: ignore[assignment]  # noqa: RUF005
                _fetch_tile(k_desc, keys, turn, pages, kv_head * HEAD, PAGE)
                _fetch_tile(v_desc, values, turn, pages, kv_head * HEAD, PAGE)
                turn += 1


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
        token = first + gl.arange(0, BLOCK_N, layout=gl.SliceLayout(0, scores.type.layout))
        seen = gl.expand_dims(token, 0) <= gl.expand_dims(own, 1)
        if HAS_WINDOW:
            seen = seen & (gl.expand_dims(token, 0) > gl.expand_dims(own - window, 1))
        scores = gl.where(seen, _bend(scores, scale, softcap, HAS_SOFTCAP), float("-inf"))
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
    acc, best, total, q_tile, keys, values, begin, end, scale, softcap, factor,
    HAS_SOFTCAP: gl.constexpr,
):  # fmt: skip
    """The same over tiles that every row sees, the next scores computed during a softmax."""
    scores = warpgroup_mma_wait(0, deps=[_score(q_tile, keys, begin)])
    _leave(keys, begin)
    scores = _bend(scores, scale, softcap, HAS_SOFTCAP)
    p, best, total, shrink = _softmax(scores, best, total, factor, False)
    acc = _rescale(acc, shrink)
    shares = _operand(p, acc, q_tile.dtype)
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
def _attend_block(
    q_ptr, out_ptr, q_tile, keys, values, scale, softcap, window,
    q_token_stride, q_head_stride, out_token_stride,
    kv_head, first_query, queries, length, begin, group, last, turn, tiles, masked, edge,
    HAS_WINDOW: gl.constexpr, HAS_SOFTCAP: gl.constexpr,
):  # fmt: skip
    """64 packed rows from `begin` on over all tiles, of which the first is that of `turn`."""
    HEAD: gl.constexpr = q_tile.shape[1]
    BLOCK_N: gl.constexpr = keys[0].shape[1]
    ROWS: gl.constexpr = gl.BlockedLayout([1, 8], [256 // HEAD, HEAD // 8], [4, 1], [1, 0])
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HEAD, 16])
    packed = begin + gl.arange(0, _HALF, layout=gl.SliceLayout(1, ROWS))
    at = (first_query + packed // group).to(gl.int64) * q_token_stride
    at += (kv_head * group + packed % group) * q_head_stride
    col = gl.arange(0, HEAD, layout=gl.SliceLayout(0, ROWS))
    live = gl.expand_dims(packed < queries * group, 1)
    q_at = q_ptr + gl.expand_dims(at, 1) + gl.expand_dims(col, 0)
    q_tile.store(gl.load(q_at, mask=live, other=0.0))
    fence_async_shared()

    factor = 1.4426950408889634 if HAS_SOFTCAP else scale * 1.4426950408889634
    row = begin + gl.arange(0, _HALF, layout=gl.SliceLayout(1, SCORES))
    own = length - queries + row // group
    best = gl.full([_HALF], float("-inf"), gl.float32, layout=gl.SliceLayout(1, SCORES))
    total = gl.zeros([_HALF], gl.float32, layout=gl.SliceLayout(1, SCORES))
    acc = gl.zeros([_HALF, HEAD], gl.float32, layout=SUMS)
    acc, best, total = _masked_tiles(
        acc, best, total, q_tile, keys, values, turn, turn + masked, last + turn, own, length,
        scale, softcap, window, factor, HAS_WINDOW, HAS_SOFTCAP, ROWS,
    )  # fmt: skip
    if masked < edge:
        acc, best, total = _open_tiles(
            acc, best, total, q_tile, keys, values, turn + masked, turn + edge,
            scale, softcap, factor, HAS_SOFTCAP,
        )  # fmt: skip
    if HAS_WINDOW:
        acc, best, total = _masked_tiles(
            acc, best, total, q_tile, keys, values, turn + edge, turn + tiles, last + turn, own,
            length, scale, softcap, window, factor, HAS_WINDOW, HAS_SOFTCAP, ROWS,
        )  # fmt: skip
    out = _rescale(acc, 1.0 / gl.where(total > 0, total, 1.0))
    packed = begin + gl.arange(0, _HALF, layout=gl.SliceLayout(1, SUMS))
    at = (first_query + packed // group).to(gl.int64) * out_token_stride
    at += (kv_head * group + packed % group) * HEAD
    col = gl.arange(0, HEAD, layout=gl.SliceLayout(0, SUMS))
    live = gl.expand_dims(packed < queries * group, 1)
    out_at = out_ptr + gl.expand_dims(at, 1) + gl.expand_dims(col, 0)
    gl.store(out_at, out.to(q_tile.dtype), mask=live)


@gluon.jit
def _attend(
    q_ptr, out_ptr, q_tile, keys, values, scale, softcap, half,
    q_token_stride, q_head_stride, out_token_stride,
    me, rounds, programs, kv_heads, lens_ptr, starts_ptr, batch, group, window,
    BLOCK_M: gl.constexpr, HAS_WINDOW: gl.constexpr, HAS_SOFTCAP: gl.constexpr,
):  # fmt: skip
    """A warp group: of each block the packed rows from `half` on."""
    turn = 0
    for round_ in range(rounds):
        _row, kv_head, first_query, queries, length, begin, last, tiles, masked, edge = _block(
            round_, me, programs, kv_heads, lens_ptr, starts_ptr, batch, group, window,
            BLOCK_M, keys[0].shape[1], HAS_WINDOW, 4,
        )  # fmt: skip
        if tiles > 0:
            _attend_block(
                q_ptr, out_ptr, q_tile, keys, values, scale, softcap, window,
                q_token_stride, q_head_stride, out_token_stride, kv_head, first_query, queries,
                length, begin + half, group, last, turn, tiles, masked, edge,
                HAS_WINDOW, HAS_SOFTCAP,
            )  # fmt: skip
            turn += tiles


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
    do_not_specialize=["window", "table_stride", "programs", "kv_heads", "batch", "group"],
    do_not_specialize_on_alignment=["tables_ptr", "rows_ptr", "lens_ptr", "starts_ptr"],
)
def _hopper_kernel(
    q_ptr, k_desc, v_desc, out_ptr, tables_ptr, rows_ptr, lens_ptr, starts_ptr,
    scale, softcap, window,
    q_token_stride, q_head_stride, out_token_stride, table_stride,
    programs, kv_heads, batch, group,
    PAGE: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, HEAD: gl.constexpr,
    STAGES: gl.constexpr, HAS_WINDOW: gl.constexpr, HAS_SOFTCAP: gl.constexpr,
):  # fmt: skip
    """out = softmax(q k^T, causal) v, block after block of BLOCK_M packed rows and a KV head."""
    DTYPE: gl.constexpr = q_ptr.dtype.element_ty
    q_tiles = gl.allocate_shared_memory(
        DTYPE, [BLOCK_M // _HALF, _HALF, HEAD], gl.NVMMASharedLayout(128, 16, 2)
    )
    keys = _ring(DTYPE, STAGES, BLOCK_N, HEAD)
    values = _ring(DTYPE, STAGES, BLOCK_N, HEAD)
    fence_async_shared()
    me = gl.program_id(0)
    rounds = gl.cdiv(programs * kv_heads, gl.num_programs(0))
    gl.warp_specialize(
        [
            (_attend, (
                q_ptr, out_ptr, q_tiles.index(0), keys, values, scale, softcap, 0,
                q_token_stride, q_head_stride, out_token_stride,
                me, rounds, programs, kv_heads, lens_ptr, starts_ptr, batch, group, window,
                BLOCK_M, HAS_WINDOW, HAS_SOFTCAP,
            )),
            (_attend, (
                q_ptr, out_ptr, q_tiles.index(1), keys, values, scale, softcap, _HALF,
                q_token_stride, q_head_stride, out_token_stride,
                me, rounds, programs, kv_heads, lens_ptr, starts_ptr, batch, group, window,
                BLOCK_M, HAS_WINDOW, HAS_SOFTCAP,
            )),
            (_fetch, (
                k_desc, v_desc, keys, values, tables_ptr, rows_ptr, table_stride,
                me, rounds, programs, kv_heads, lens_ptr, starts_ptr, batch, group, window,
                PAGE, BLOCK_M, HAS_WINDOW,
            )),
        ],
        [4, 1],  # warps of the second group and of the fetching one
        [_REGISTERS, _FETCH_REGISTERS],
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
    programs = q.shape[0] * group // BLOCK_M + batch
    _hopper_kernel[(min(programs * kv_heads, multiprocessors(q.device)),)](
        q, k_desc, v_desc, out, block_tables, rows, seq_lens, query_start,
        scale, softcap or 0.0, window or 0,
        q.stride(0), q.stride(1), out.stride(0), block_tables.stride(0),
        programs, kv_heads, batch, group,
        PAGE=page_size, BLOCK_M=BLOCK_M, BLOCK_N=block_n, HEAD=head, STAGES=stages,
        HAS_WINDOW=window is not None, HAS_SOFTCAP=softcap is not None, num_warps=4,
    )  # fmt: skip
