"""Projections of some dozens of rows: the weight is the left operand of the tensor cores.

The kernel computes weight x^T ("swapped A and B"), so that the tensor cores' tile of 64 rows is
filled by 64 outputs (or 32 gated ones) whatever the number of rows of x. Before it waits for the
kernel that writes its input, a program prefetches its weights (`launch`), so that memory is not
idle between two projections. If outputs are few, SPLIT programs share the summed columns (split-K).
The program that finishes last adds all partial sums in the order of the columns, so the result does
not depend on which program that is.
"""

# ruff: noqa: PLR0917, D403 - a kernel takes pointers and strides; its docstring is its formula
# ruff: noqa: C901, PLR0912, SIM102 - its branches are decided when it is compiled


# mypy: disable-error-code="no-untyped-def"

import functools
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from yaie_kernels.triton.device import is_hopper
from yaie_kernels.triton.launch import await_previous, dependent
from yaie_kernels.triton.projection.gemv import gate_of
from yaie_kernels.triton.projection.skinny import LINE, PREFETCHED_WEIGHTS, prefetch

_BLOCK_N = 64
_LEAST, MOST = 5, 128  # rows
_COUNTS = 256  # most blocks whose columns several programs share


@triton.jit(do_not_specialize=["rows"])
def _wide_kernel(
    x_ptr, weight_ptr, x_desc, weight_desc, bias_ptr, out_ptr, part_ptr, count_ptr,
    rows, N, K, chunk, ahead,
    HAS_BIAS: tl.constexpr, GATE: tl.constexpr, EVEN_K: tl.constexpr, BOXES: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, STAGES: tl.constexpr,
    SPLIT: tl.constexpr, LINE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """out = linear(x), gated if GATE is not empty (the weight's rows as in `gemv`)."""
    GATED: tl.constexpr = GATE != ""
    OUTS: tl.constexpr = BLOCK_N // 2 if GATED else BLOCK_N
    first_col = tl.program_id(0) * OUTS
    first_row = tl.program_id(2) * BLOCK_M
    lane = tl.arange(0, BLOCK_N)
    weight_row = tl.minimum(first_col + lane % OUTS, N - 1) + lane // OUTS * N
    weight_at = weight_ptr + weight_row.to(tl.int64)[:, None] * K
    begin = tl.program_id(1) * chunk
    end = tl.minimum(begin + chunk, K)
    if PDL:
        if first_row == 0:
            line = tl.arange(0, 8) * LINE
            for start in range(begin, tl.minimum(end, begin + ahead), 8 * LINE):
                prefetch(weight_at + tl.minimum(start + line, K - 1)[None, :])
    await_previous(PDL)

    row = first_row + tl.arange(0, BLOCK_M)
    x_at = x_ptr + row.to(tl.int64)[:, None] * K
    acc = tl.zeros([BLOCK_N, BLOCK_M], dtype=tl.float32)
    for start in tl.range(begin, end, BLOCK_K, num_stages=STAGES):
        if BOXES:
            x = x_desc.load([first_row, start])
            weight = weight_desc.load([first_col, start])
        else:
            k = (start + tl.arange(0, BLOCK_K))[None, :]
            if EVEN_K:
                x = tl.load(x_at + k, (row < rows)[:, None], 0.0)
                weight = tl.load(weight_at + k)
            else:
                x = tl.load(x_at + k, (row < rows)[:, None] & (k < K), 0.0)
                weight = tl.load(weight_at + k, k < K, 0.0)
        acc = tl.dot(weight, tl.trans(x), acc)

    if GATED:
        halves = tl.permute(tl.reshape(acc, [2, OUTS, BLOCK_M]), (1, 2, 0))
        first, second = tl.split(halves)
    else:
        first = acc
    out = tl.arange(0, OUTS)[:, None]
    if SPLIT > 1:
        SIZE: tl.constexpr = OUTS * BLOCK_M
        block = tl.program_id(2) * tl.num_programs(0) + tl.program_id(0)
        parts = part_ptr + block * (SPLIT * SIZE) + out * BLOCK_M + tl.arange(0, BLOCK_M)[None, :]
        tl.store(parts + tl.program_id(1) * SIZE, first)
        tl.debug_barrier()  # the count of one thread announces the stores of all
        if tl.atomic_add(count_ptr + block, 1, sem="acq_rel") < SPLIT - 1:
            return
        tl.store(count_ptr + block, 0)
        first = tl.zeros_like(first)
        for i in tl.static_range(SPLIT):
            first += tl.load(parts + i * SIZE, cache_modifier=".cg")
    out_col = first_col + out
    if HAS_BIAS:
        bias_at = bias_ptr + tl.minimum(out_col, N - 1)
        first += tl.load(bias_at).to(tl.float32)
        if GATED:
            second += tl.load(bias_at + N).to(tl.float32)
    if GATED:
        first = gate_of(first, GATE) * second
    mask = (row < rows)[None, :] & (out_col < N)
    tl.store(out_ptr + row.to(tl.int64)[None, :] * N + out_col, first, mask=mask)


class Tiles(NamedTuple):
    """Rows per program, columns at a time, programs that share the columns, pipeline stages.

    `boxes`: load by the tensor memory accelerator, which does not support gated weights here.
    """

    block_m: int
    block_k: int
    split: int
    stages: int
    boxes: bool = False


def wide(
    x: Tensor, weight: Tensor, bias: Tensor | None, tiles: Tiles, *, gate: str | None = None
) -> Tensor:
    """linear(x) for x[T,K], T >= 1."""
    rows, cols = x.shape
    n = weight.shape[0] // (2 if gate else 1)
    block_m, block_k, split, stages, boxes = tiles
    x = x.contiguous()
    out = torch.empty((rows, n), dtype=x.dtype, device=x.device)
    outs = _BLOCK_N // (2 if gate else 1)
    grid = (triton.cdiv(n, outs), split, triton.cdiv(rows, block_m))
    part, counts = out, out
    if split > 1:
        size = grid[0] * grid[2] * split * outs * block_m
        part = torch.empty(size, dtype=torch.float32, device=x.device)
        counts = _counts(x.device)
    x_desc = weight_desc = None
    if boxes:
        x_desc = TensorDescriptor(x, [rows, cols], [cols, 1], [block_m, block_k])
        weight_desc = TensorDescriptor(weight, [n, cols], [cols, 1], [_BLOCK_N, block_k])
    _wide_kernel[grid](
        x, weight, x_desc, weight_desc, x if bias is None else bias, out, part, counts,
        rows, n, cols, triton.cdiv(triton.cdiv(cols, block_k), split) * block_k,
        0 if weight.numel() > PREFETCHED_WEIGHTS else triton.cdiv(cols, 16) * 16,
        HAS_BIAS=bias is not None, GATE=gate or "", EVEN_K=cols % block_k == 0, BOXES=boxes,
        BLOCK_M=block_m, BLOCK_N=_BLOCK_N, BLOCK_K=block_k, STAGES=stages,
        SPLIT=split, LINE=LINE, **dependent(x), num_warps=4,
    )  # fmt: skip
    return out


@functools.cache
def _counts(device: torch.device) -> Tensor:
    """Counters that are zero before and after every kernel; a device's kernels share them, so they
    must not run concurrently.

    Raises:
        RuntimeError: A graph is being captured, so the zeroing would become part of the graph.

    """
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        raise RuntimeError("a projection has to run once before a graph of it is captured")
    return torch.zeros(_COUNTS, dtype=torch.int32, device=device)


def choose(x: Tensor, weight: Tensor, *, gated: bool) -> Tiles | None:
    """Tiles for these rows and this device; None if another kernel should compute them.

    x and weight are in half precision, and the weight's rows are whole vectors of 16 bytes.
    """
    rows, cols = x.shape
    if not _LEAST <= rows <= MOST or (x.is_cuda and not is_hopper(x.device)):
        return None
    if (x.data_ptr() | weight.data_ptr()) % 16:
        return None
    return choose_tiles(rows, weight.shape[0] // (2 if gated else 1), cols, gated=gated)


def choose_tiles(rows: int, n: int, k: int, *, gated: bool) -> Tiles | None:
    """Tiles by rows; programs share columns if outputs are few. None: another kernel is as fast.

    Measured on an H200 in captured chains of layers. A last tile that is mostly padding costs more
    than it gains (192 rows: a loss, 96 rows: 2 %, 128 rows: 6 %); 65 to 95 rows are not measured.
    """
    blocks = triton.cdiv(n, _BLOCK_N)
    if blocks < 16 or (not gated and blocks > 128 and k > 1024):
        return None
    if rows <= 16:
        return Tiles(16, 128, 4, 4) if blocks <= 32 and k >= 2048 and not gated else None
    if rows <= 64:
        return _dozens(blocks, k, gated=gated, few=rows <= 32)
    if rows < 96 or gated or n * k > PREFETCHED_WEIGHTS or 16 < blocks < 64:
        return None
    return Tiles(64, 128, 2 if blocks <= 16 else 1, 4, boxes=True)


def _dozens(blocks: int, k: int, *, gated: bool, few: bool) -> Tiles | None:
    """Tiles for up to 32 rows if `few`, else for up to 64."""
    if blocks > (64 if gated else 128):
        return Tiles(32, 128, 1, 4) if few else Tiles(64, 64, 1, 5)
    if gated:
        return Tiles(32, 256, 1, 3) if few else Tiles(64, 128, 1, 4)
    return _up_to_32(blocks, k) if few else _up_to_64(blocks, k)


def _up_to_32(blocks: int, k: int) -> Tiles | None:
    if blocks <= 32:
        return Tiles(32, 256, 4, 3) if k >= 1024 else None
    if blocks <= 64 and k >= 4096:
        return Tiles(32, 256, 2, 3) if blocks > 48 or k == 4096 else None
    return Tiles(32, 256, 1, 3) if blocks >= 64 else None


def _up_to_64(blocks: int, k: int) -> Tiles | None:
    if blocks <= 16:
        return Tiles(32, 256, 4, 3) if k >= 1024 else None
    if blocks <= 32:
        return Tiles(64, 128, 4, 4) if k >= 8192 else None
    if blocks == 64 and k > 8192:
        return Tiles(64, 128, 2, 4)
    return Tiles(64, 128, 1, 4, boxes=True) if blocks >= 64 and k <= 2048 else None
