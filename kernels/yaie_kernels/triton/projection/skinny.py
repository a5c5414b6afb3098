"""Projections of up to 16 rows: the height of one tensor core tile, so the weight is read once."""

# ruff: noqa: PLR0917, D403 - a kernel takes pointers and strides; its docstring is its formula


# mypy: disable-error-code="no-untyped-def"

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from yaie_kernels.triton.launch import await_previous, dependent
from yaie_kernels.triton.projection.gemv import gate_of

ROWS = 16
LINE = 64  # elements of a cache line of 128 bytes, at two bytes each
_PREFETCHED_COLUMNS = 2048
PREFETCHED_WEIGHTS = 2**23  # above, most programs start after the wait: no gain (measured)


@triton.jit
def prefetch(at):
    """Prefetch the cache lines at these addresses into the L2 cache."""
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; mov.u32 $0, 0;", "=r,l", [at.to(tl.int64, bitcast=True)],
        dtype=tl.int32, is_pure=False, pack=1,
    )  # fmt: skip


@triton.jit(do_not_specialize=["rows"])
def _skinny_kernel(
    x_ptr, weight_ptr, bias_ptr, out_ptr, rows,
    N: tl.constexpr, K: tl.constexpr, HAS_BIAS: tl.constexpr, GATE: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, STAGES: tl.constexpr,
    LINES: tl.constexpr, LINE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """out = linear(x), gated if GATE is not empty (the weight's rows as in `gemv`)."""
    EVEN_K: tl.constexpr = K % BLOCK_K == 0
    GATED: tl.constexpr = GATE != ""
    out_col = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    weight_row = tl.minimum(out_col, N - 1)
    weight_at = weight_ptr + weight_row.to(tl.int64)[:, None] * K
    if PDL and LINES > 0:
        line = tl.arange(0, LINES) * LINE
        prefetch(weight_at + line[None, :])
        if GATED:
            prefetch(weight_at + (line + N * K)[None, :])
    await_previous(PDL)

    col = tl.arange(0, BLOCK_K)
    row = tl.arange(0, BLOCK_M)
    first = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    second = first
    for start in tl.range(0, K, BLOCK_K, num_stages=STAGES):
        k = start + col
        inside = (k < K)[None, :]
        live = None if EVEN_K else inside
        other = None if EVEN_K else 0.0
        at = weight_at + k[None, :]
        x = tl.load(x_ptr + row[:, None] * K + k[None, :], (row < rows)[:, None] & inside, 0.0)
        weight = tl.load(at, live, other, eviction_policy="evict_first")
        first = tl.dot(x, tl.trans(weight), first)
        if GATED:
            weight = tl.load(at + N * K, live, other, eviction_policy="evict_first")
            second = tl.dot(x, tl.trans(weight), second)
    if HAS_BIAS:
        first += tl.load(bias_ptr + weight_row).to(tl.float32)[None, :]
        if GATED:
            second += tl.load(bias_ptr + N + weight_row).to(tl.float32)[None, :]
    if GATED:
        first = gate_of(first, GATE) * second
    mask = (row < rows)[:, None] & (out_col < N)[None, :]
    tl.store(out_ptr + row[:, None] * N + out_col[None, :], first, mask=mask)


class Tiles(NamedTuple):
    """Outputs per program, columns of the weight loaded at a time, warps, and pipeline stages."""

    block_n: int
    block_k: int
    warps: int
    stages: int


def skinny(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    *,
    gate: str | None = None,
    tiles: Tiles | None = None,
) -> Tensor:
    """linear(x) for x[T,K], 1 <= T <= 16; `tiles` overrides the choice."""
    rows, cols = x.shape
    n = weight.shape[0] // (2 if gate else 1)
    x = x.contiguous()
    out = torch.empty((rows, n), dtype=x.dtype, device=x.device)
    block_n, block_k, warps, stages = tiles or choose_tiles(n, gated=gate is not None)
    _skinny_kernel[(triton.cdiv(n, block_n),)](
        x, weight, x if bias is None else bias, out, rows,
        N=n, K=cols, HAS_BIAS=bias is not None, GATE=gate or "",
        BLOCK_M=ROWS, BLOCK_N=block_n, BLOCK_K=block_k, STAGES=stages,
        LINES=_lines(weight),
        LINE=LINE,
        **dependent(x), num_warps=warps,
    )  # fmt: skip
    return out


def _lines(weight: Tensor) -> int:
    """Cache lines of each row to prefetch before the wait: a power of two, or 0."""
    if weight.numel() > PREFETCHED_WEIGHTS:
        return 0
    return 1 << max(1, min(weight.shape[1], _PREFETCHED_COLUMNS) // LINE).bit_length() - 1


def choose_tiles(n: int, *, gated: bool) -> Tiles:
    """Small tiles for few outputs, so that every multiprocessor has work."""
    if n <= 2048 and not gated:
        return Tiles(8, 256, 1, 6)
    if n <= 16_384:
        return Tiles(16, 256, 1, 4 if gated else 5)
    return Tiles(32, 128, 2, 4 if gated else 5)
