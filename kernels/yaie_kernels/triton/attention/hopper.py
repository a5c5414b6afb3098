"""Extend attention for Hopper in Gluon: loads, products and softmax of a block overlap.

The work is that of `extend`, in blocks of 128 packed rows, and the design that of FlashAttention-3
(Shah et al. 2024, arXiv:2407.08608): warps with different roles, asynchronous loads and products.
Programs are persistent and claim one block after another, so the end of a block overlaps with the
beginning of the next:

    planning warp    claims a block, finds its row, length and tiles -> a plan in shared memory
    fetching warp    copies the plan's tiles of keys and values, last to first -> rings of stages
    two warp groups  queries, products and softmax of 64 packed rows each -> out

A key tile is copied page by page by the tensor memory accelerator, so that no thread computes
addresses. While one group's softmax uses the ordinary units, the other group's products use the
tensor cores. Tiles go from last to first, so those that need a mask come first.

The result does not depend on which program computes a block. Gluon has no interpreter; on other
devices `extend` computes the same.
"""

# ruff: noqa: PLR0917, D403 - a kernel takes pointers and strides; its docstring is its formula


# mypy: disable-error-code="no-untyped-def, annotation-unchecked"

from typing import NamedTuple

import torch
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    async_copy,
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from yaie_kernels.triton.device import is_hopper, multiprocessors

BLOCK_M = 128
_HALF = gl.constexpr(64)  # rows per warp group, and columns per copy (128 bytes, swizzled)
_SEARCH = gl.constexpr(128)
_SLOTS = gl.constexpr(2)  # plans in shared memory
_PLAN = gl.constexpr(16)  # integers per plan
_AHEAD = gl.constexpr(2)  # tiles left to fetch when the next block is claimed
# names of triton >= 3.9, else the older names
_load_box = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared
_load_async = getattr(async_copy, "async_load", None) or async_copy.async_copy_global_to_shared
_barrier = getattr(gl, "barrier", None) or gl.thread_barrier  # for the warps of one role


@gluon.jit
def _find_block(starts_ptr, batch, group, program, BLOCK_M: gl.constexpr):
    """Gluon version of `extend._find_block`."""
    offset = gl.arange(0, _SEARCH, layout=gl.BlockedLayout([4], [32], [1], [0]))
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
    """Copy a tile's pages into the ring's next stage, once all readers have released the stage."""
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
def _field(plan, i: gl.constexpr):
    """Field i of a plan; `_plan` lists the fields."""
    at = gl.arange(0, _PLAN, layout=plan.type.layout)
    return gl.sum(gl.where(at == i, plan, 0), axis=0)


@gluon.jit
def _read_plan(plans, block, WARPS: gl.constexpr, LEAVE: gl.constexpr):
    """Wait for the plan of a program's block and read it; LEAVE: release its slot."""
    slots, full, empty = plans
    slot = block % _SLOTS
    mbarrier.wait(full.index(slot), block // _SLOTS & 1)
    plan = slots.index(slot).load(gl.BlockedLayout([_PLAN], [32], [WARPS], [0]))
    if LEAVE:
        mbarrier.arrive(empty.index(slot), count=1)
    return plan


@gluon.jit
def _publish(plans, plan, block):
    """Write a plan to shared memory, once its slot is free, and signal the other warps."""
    slots, full, empty = plans
    slot = block % _SLOTS
    mbarrier.wait(empty.index(slot), block // _SLOTS & 1 ^ 1)
    slots.index(slot).store(plan)
    _barrier()
    mbarrier.arrive(full.index(slot), count=1)


@gluon.jit
def _plan(
    claims_ptr, ask, plans, starts_ptr, lens_ptr, batch, group, kv_heads, window,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, HAS_WINDOW: gl.constexpr,
):  # fmt: skip
    """The planning warp: claims blocks and publishes their plans, a row's longest blocks first.

    Fields of a plan: row, KV head, index of the row's first query, number of its queries, its
    length, first packed row of the block, last tile, number of tiles, and the turns `masked` and
    `edge`: the tiles of turns between them need no mask. A plan with no tiles ends the program.
    """
    FLAT: gl.constexpr = gl.BlockedLayout([1], [32], [1], [0])
    blocks = gl.load(starts_ptr + batch) * group // BLOCK_M + batch
    items = blocks * kv_heads
    item = gl.program_id(0)
    planned = 0
    while item < items:
        kv_head = item % kv_heads
        row, block = _find_block(starts_ptr, batch, group, blocks - 1 - item // kv_heads, BLOCK_M)
        there = (row >= 0) & (row < batch)
        first_query = gl.load(starts_ptr + row, mask=there, other=0)
        queries = gl.load(starts_ptr + row + 1, mask=there, other=0) - first_query
        length = gl.load(lens_ptr + row, mask=there, other=0)
        begin = block * BLOCK_M
        there = there & (begin < queries * group) & (length > 0)
        if there:
            own_first = length - queries + begin // group
            own_last = gl.minimum(length - queries + (begin + BLOCK_M - 1) // group, length - 1)
            last = own_last // BLOCK_N
            tiles = last + 1
            masked = gl.maximum(tiles - (own_first + 1) // BLOCK_N, 1) - 1
            edge = tiles
            if HAS_WINDOW:
                edge = tiles - gl.cdiv(gl.maximum(own_last - window + 1, 0), BLOCK_N)
                tiles = tiles - gl.maximum(own_first - window + 1, 0) // BLOCK_N
                masked = gl.minimum(masked, tiles - 1)
                edge = gl.maximum(masked + 1, gl.minimum(edge, tiles))
            at = gl.arange(0, _PLAN, layout=FLAT)
            plan = gl.where(at == 0, row, 0)
            plan = gl.where(at == 1, kv_head, plan)
            plan = gl.where(at == 2, first_query, plan)
            plan = gl.where(at == 3, queries, plan)
            plan = gl.where(at == 4, length, plan)
            plan = gl.where(at == 5, begin, plan)
            plan = gl.where(at == 6, last, plan)
            plan = gl.where(at == 7, tiles, plan)
            plan = gl.where(at == 8, masked, plan)
            plan = gl.where(at == 9, edge, plan)
            _publish(plans, plan, planned)
            # claim late: a block claimed early may wait here while another program is idle
            mbarrier.wait(ask.index(0), planned & 1)
            planned += 1
        if gl.num_programs(0) < items:
            item = gl.num_programs(0) + gl.atomic_add(claims_ptr, 1)
        else:
            item = items
    _publish(plans, gl.zeros([_PLAN], gl.int32, FLAT), planned)


@gluon.jit
def _fetch(
    k_desc, v_desc, keys, values, ask, plans, tables_ptr, rows_ptr, table_stride,
    PAGE: gl.constexpr,
):  # fmt: skip
    """The fetching warp: copies each plan's tiles last, last - 1, .. of keys and values."""
    PAGES: gl.constexpr = keys[0].shape[1] // PAGE
    HEAD: gl.constexpr = keys[0].shape[2]
    turn = 0
    block = 0
    tiles = 1
    while tiles > 0:
        plan = _read_plan(plans, block, 1, True)
        row = _field(plan, 0)
        column = _field(plan, 1) * HEAD
        last_page = (_field(plan, 4) - 1) // PAGE
        last = _field(plan, 6)
        tiles = _field(plan, 7)
        if tiles > 0:
            line = row if rows_ptr is None else gl.load(rows_ptr + row)
            table = tables_ptr + line.to(gl.int64) * table_stride
            asking = last - gl.maximum(tiles - _AHEAD, 0)
            for tile in range(last, last - tiles, -1):
                mbarrier.arrive(ask.index(0), count=1, pred=tile == asking)
                pages = ()
                for j in gl.static_range(PAGES):
                    page = gl.load(table + gl.minimum(tile * PAGES + j, last_page))
                    # the compiler does not support starred expressions
                    pages = pages + (page,)  # type: ignore[assignment]  # noqa: RUF005
                _fetch_tile(k_desc, keys, turn, pages, column, PAGE)
                _fetch_tile(v_desc, values, turn, pages, column, PAGE)
                turn += 1
        block += 1


@gluon.jit
def _wait_full(ring, turn):
    """Wait until the tile of a turn has arrived, and return it."""
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
    """Start the asynchronous product q k^T of a turn."""
    k = _wait_full(keys, turn)
    BLOCK_N: gl.constexpr = k.shape[0]
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    nothing = gl.zeros([_HALF, BLOCK_N], gl.float32, LAYOUT)
    return warpgroup_mma(q_tile, k.permute((1, 0)), nothing, use_acc=False, is_async=True)


@gluon.jit
def _softmax(scores, best, total, factor, BLIND: gl.constexpr):
    """One step of the online softmax (arXiv:1805.02867): (shares, best, total, rescaling factor).

    BLIND: a row may not have seen any token yet.
    """
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
    """Shares as the left operand of a product that accumulates into acc."""
    return gl.convert_layout(p.to(dtype), gl.DotOperandLayout(0, acc.type.layout, 2))


@gluon.jit
def _clear_stale(v, tokens, ROWS: gl.constexpr):
    """Zero the rows from `tokens` on: 0 * NaN would be NaN. Both warp groups write the zeros."""
    at = gl.arange(0, v.shape[0], layout=gl.SliceLayout(1, ROWS))
    kept = v.load(ROWS)
    v.store(gl.where(gl.expand_dims(at < tokens, 1), kept, gl.zeros_like(kept)))
    fence_async_shared()


@gluon.jit
def _see(scores, first, own, window, HAS_WINDOW: gl.constexpr):
    """Mask the scores of the tile that begins at token `first`, for rows at positions `own`."""
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
    """Online softmax over the tiles of turns [begin, end), all masked; `own`: rows' positions."""
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
    DEFER: gl.constexpr,
):  # fmt: skip
    """The same, but only the first tile needs a mask. DEFER: the product with a tile's values runs
    together with the next tile's scores, which needs registers for both.
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
    if DEFER:
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
    else:
        acc = warpgroup_mma(shares, _wait_full(values, begin), acc, is_async=True)
        acc = warpgroup_mma_wait(0, deps=[acc])
        _leave(values, begin)
        for turn in range(begin + 1, end):
            scores = warpgroup_mma_wait(0, deps=[_score(q_tile, keys, turn)])
            _leave(keys, turn)
            scores = _bend(scores, scale, softcap, HAS_SOFTCAP)
            p, best, total, shrink = _softmax(scores, best, total, factor, False)
            acc = _rescale(acc, shrink)
            acc = warpgroup_mma(
                _operand(p, acc, q_tile.dtype), _wait_full(values, turn), acc, is_async=True
            )
            acc = warpgroup_mma_wait(0, deps=[acc])
            _leave(values, turn)
    return acc, best, total


@gluon.jit
def _load_queries(
    q_ptr, q_tile, plans, block, q_token_stride, q_head_stride, group, WHO: gl.constexpr,
):  # fmt: skip
    """Start to copy a warp group's 64 packed rows of queries; none if the plan has no tiles."""
    HEAD: gl.constexpr = q_tile.shape[1]
    ROWS: gl.constexpr = gl.BlockedLayout([1, 8], [256 // HEAD, HEAD // 8], [4, 1], [1, 0])
    plan = _read_plan(plans, block, 4, False)
    first_query = _field(plan, 2)
    begin = _field(plan, 5) + WHO * _HALF
    rows = gl.where(_field(plan, 7) > 0, _field(plan, 3) * group, 0)
    packed = begin + gl.arange(0, _HALF, layout=gl.SliceLayout(1, ROWS))
    at = (first_query + packed // group).to(gl.int64) * q_token_stride
    at += (_field(plan, 1) * group + packed % group) * q_head_stride
    col = gl.arange(0, HEAD, layout=gl.SliceLayout(0, ROWS))
    live = gl.expand_dims(packed < rows, 1)
    q_at = q_ptr + gl.expand_dims(at, 1) + gl.expand_dims(col, 0)
    _load_async(q_tile, q_at, mask=live)
    async_copy.commit_group()


@gluon.jit
def _attend(
    q_ptr, out_ptr, q_tile, plans, keys, values, scale, softcap, window,
    q_token_stride, q_head_stride, out_token_stride, group,
    WHO: gl.constexpr, DEFER: gl.constexpr, HAS_WINDOW: gl.constexpr, HAS_SOFTCAP: gl.constexpr,
):  # fmt: skip
    """A warp group: computes 64 packed rows of each block over all tiles."""
    HEAD: gl.constexpr = q_tile.shape[1]
    BLOCK_N: gl.constexpr = keys[0].shape[1]
    ROWS: gl.constexpr = gl.BlockedLayout([1, 8], [256 // HEAD, HEAD // 8], [4, 1], [1, 0])
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HEAD, 16])
    factor = 1.4426950408889634 if HAS_SOFTCAP else scale * 1.4426950408889634
    base = 0
    block = 0
    tiles = 1
    _load_queries(q_ptr, q_tile, plans, 0, q_token_stride, q_head_stride, group, WHO)
    while tiles > 0:
        plan = _read_plan(plans, block, 4, True)
        kv_head = _field(plan, 1)
        first_query = _field(plan, 2)
        queries = _field(plan, 3)
        length = _field(plan, 4)
        begin = _field(plan, 5) + WHO * _HALF
        last = _field(plan, 6) + base
        tiles = _field(plan, 7)
        masked = _field(plan, 8) + base
        edge = _field(plan, 9) + base
        if tiles > 0:
            async_copy.wait_group(0)
            fence_async_shared()
            _barrier()
            row = begin + gl.arange(0, _HALF, layout=gl.SliceLayout(1, SCORES))
            own = length - queries + row // group
            best = gl.full([_HALF], float("-inf"), gl.float32, layout=gl.SliceLayout(1, SCORES))
            total = gl.zeros([_HALF], gl.float32, layout=gl.SliceLayout(1, SCORES))
            acc = gl.zeros([_HALF, HEAD], gl.float32, layout=SUMS)
            acc, best, total = _masked_tiles(
                acc, best, total, q_tile, keys, values, base, masked, last, own, length,
                scale, softcap, window, factor, HAS_WINDOW, HAS_SOFTCAP, ROWS,
            )  # fmt: skip
            acc, best, total = _open_tiles(
                acc, best, total, q_tile, keys, values, masked, edge, last, own, length,
                scale, softcap, window, factor,
                HAS_WINDOW, HAS_SOFTCAP, ROWS, DEFER,
            )  # fmt: skip
            if HAS_WINDOW:
                acc, best, total = _masked_tiles(
                    acc, best, total, q_tile, keys, values, edge, base + tiles, last, own, length,
                    scale, softcap, window, factor, HAS_WINDOW, HAS_SOFTCAP, ROWS,
                )  # fmt: skip
            # no warp reads this block's queries any more: each tile ends with a group barrier
            _load_queries(
                q_ptr, q_tile, plans, block + 1, q_token_stride, q_head_stride, group, WHO
            )  # fmt: skip
            out = _rescale(acc, 1.0 / gl.where(total > 0, total, 1.0))
            packed = begin + gl.arange(0, _HALF, layout=gl.SliceLayout(1, SUMS))
            at = (first_query + packed // group).to(gl.int64) * out_token_stride
            at += (kv_head * group + packed % group) * HEAD
            col = gl.arange(0, HEAD, layout=gl.SliceLayout(0, SUMS))
            live = gl.expand_dims(packed < queries * group, 1)
            out_at = out_ptr + gl.expand_dims(at, 1) + gl.expand_dims(col, 0)
            gl.store(out_at, out.to(q_tile.dtype), mask=live)
            base += tiles
        block += 1


@gluon.jit
def _barriers(STAGES: gl.constexpr, READERS: gl.constexpr):
    """The barriers "full" and "empty" of a ring's stages."""
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=READERS)
    return full, empty


@gluon.jit(
    do_not_specialize=["window", "table_stride", "batch", "group", "kv_heads"],
    do_not_specialize_on_alignment=[
        "tables_ptr", "rows_ptr", "lens_ptr", "starts_ptr", "claims_ptr",
    ],
)  # fmt: skip
def _hopper_kernel(
    q_ptr, k_desc, v_desc, out_ptr, tables_ptr, rows_ptr, lens_ptr, starts_ptr, claims_ptr,
    scale, softcap, window,
    q_token_stride, q_head_stride, out_token_stride, table_stride, batch, group, kv_heads,
    PAGE: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, HEAD: gl.constexpr,
    STAGES: gl.constexpr, REGISTERS: gl.constexpr, DEFER: gl.constexpr,
    HAS_WINDOW: gl.constexpr, HAS_SOFTCAP: gl.constexpr,
):  # fmt: skip
    """out = softmax(q k^T, causal) v for one block of BLOCK_M packed rows after another."""
    DTYPE: gl.constexpr = q_ptr.dtype.element_ty
    BOX: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    FLAT: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    q_tiles = gl.allocate_shared_memory(DTYPE, [BLOCK_M // _HALF, _HALF, HEAD], BOX)
    slots = gl.allocate_shared_memory(gl.int32, [_SLOTS, _PLAN], FLAT)
    plan_full, plan_empty = _barriers(_SLOTS, 3)
    k_tiles = gl.allocate_shared_memory(DTYPE, [STAGES, BLOCK_N, HEAD], BOX)
    k_full, k_empty = _barriers(STAGES, 2)
    v_tiles = gl.allocate_shared_memory(DTYPE, [STAGES, BLOCK_N, HEAD], BOX)
    v_full, v_empty = _barriers(STAGES, 2)
    plans = (slots, plan_full, plan_empty)
    keys = (k_tiles, k_full, k_empty)
    values = (v_tiles, v_full, v_empty)
    ask = gl.allocate_shared_memory(gl.int64, [1, 1], mbarrier.MBarrierLayout())
    mbarrier.init(ask.index(0), count=1)
    fence_async_shared()
    gl.warp_specialize(
        [
            (_attend, (
                q_ptr, out_ptr, q_tiles.index(0), plans, keys, values, scale, softcap, window,
                q_token_stride, q_head_stride, out_token_stride, group,
                0, DEFER, HAS_WINDOW, HAS_SOFTCAP,
            )),
            (_attend, (
                q_ptr, out_ptr, q_tiles.index(1), plans, keys, values, scale, softcap, window,
                q_token_stride, q_head_stride, out_token_stride, group,
                1, DEFER, HAS_WINDOW, HAS_SOFTCAP,
            )),
            (_plan, (
                claims_ptr, ask, plans, starts_ptr, lens_ptr, batch, group, kv_heads, window,
                BLOCK_M, BLOCK_N, HAS_WINDOW,
            )),
            (_fetch, (
                k_desc, v_desc, keys, values, ask, plans, tables_ptr, rows_ptr, table_stride,
                PAGE,
            )),
        ],
        [4, 1, 1],  # warps of the second warp group, and of the planning and fetching roles
        [REGISTERS, 24, 24],  # registers of their threads; the first group has the rest
    )  # fmt: skip


class Tiles(NamedTuple):
    """Tile sizes for one head size."""

    block_n: int
    stages: int  # stages of each ring, keys and values
    programs: int  # programs per multiprocessor


_BOX = gl.NVMMASharedLayout(128, 16, 2)
_TILES = {64: Tiles(64, 3, 2), 128: Tiles(128, 2, 1), 256: Tiles(64, 2, 1)}
_LARGE_PAGES = {64: Tiles(128, 3, 1)}
# Two programs on a multiprocessor hide each other's latency, but only tiles of 64 by 64 leave
# enough registers. Per thread: (at the kernel's start, in a warp group).
_REGISTERS = {1: (168, 240), 2: (80, 104)}


def _choose(head: int, page_size: int) -> Tiles | None:
    """The tiles, or None if the head size is unusual or no tile consists of whole pages."""
    for table in (_TILES, _LARGE_PAGES):
        tiles = table.get(head)
        if tiles is not None and tiles.block_n % page_size == 0:
            return tiles
    return None


def suits(q: Tensor, k_cache: Tensor, v_cache: Tensor) -> bool:
    """Whether this kernel supports the sizes, dtypes and device."""
    page_size, head = k_cache.shape[1], k_cache.shape[3]
    return (
        q.dtype in {torch.bfloat16, torch.float16}
        and page_size % 8 == 0  # a swizzled block has 8 rows
        and _choose(head, page_size) is not None
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
    tiles: Tiles | None = None,
) -> None:
    """q[T,Hq,D] -> out[T,Hq,D] for arguments that `suits` accepts; `tiles` overrides the choice.

    Raises:
        ValueError: There are no tiles for these sizes.

    """
    pages, page_size, kv_heads, head = k_cache.shape
    batch = seq_lens.shape[0]
    group = q.shape[1] // kv_heads
    tiles = tiles or _choose(head, page_size)
    if tiles is None:
        raise ValueError(f"no tiles for heads of {head} and pages of {page_size}")
    block_n, stages, programs = tiles
    at_start, registers = _REGISTERS[programs]
    shape, strides = [pages * page_size, kv_heads * head], [kv_heads * head, 1]
    k_desc, v_desc = (
        TensorDescriptor(cache, shape, strides, [page_size, _HALF.value], _BOX)
        for cache in (k_cache, v_cache)
    )
    blocks = (q.shape[0] * group // BLOCK_M + batch) * kv_heads
    resident = programs * multiprocessors(q.device)
    claims = seq_lens  # unused if each program has one block
    if blocks > resident:
        blocks, claims = resident, torch.zeros(1, dtype=torch.int32, device=q.device)
    _hopper_kernel[(blocks,)](
        q, k_desc, v_desc, out, block_tables, rows, seq_lens, query_start, claims,
        scale, softcap or 0.0, window or 0,
        q.stride(0), q.stride(1), out.stride(0), block_tables.stride(0), batch, group, kv_heads,
        PAGE=page_size, BLOCK_M=BLOCK_M, BLOCK_N=block_n, HEAD=head, STAGES=stages,
        REGISTERS=registers, DEFER=programs == 1,
        HAS_WINDOW=window is not None, HAS_SOFTCAP=softcap is not None,
        num_warps=4, maxnreg=at_start,
    )  # fmt: skip
