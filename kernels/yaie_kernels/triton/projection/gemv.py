"""Projections of a few rows (matrix-vector products): every weight is read once.

A program computes BLOCK_N outputs of all rows. It loads all their weights into registers before it
waits for the kernel that writes its input (`launch`), so that memory is not idle between two
projections; then it multiplies, sums and stores. The RMSNorm before the projection and the gate
after it are fused: the norm's scale 1 / rms(x) is a common factor of the sums.
"""

# ruff: noqa: PLR0917, D403 - a kernel takes pointers and strides; its docstring is its formula
# ruff: noqa: C901, PLR0912, RUF005 - its branches are decided when it is compiled; tuples only add


# mypy: disable-error-code="no-untyped-def, assignment, unreachable"

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from yaie_kernels.triton.launch import await_previous, dependent


@triton.jit
def gate_of(x, GATE: tl.constexpr):
    """silu(x) = x sigmoid(x), or GELU's tanh form x sigmoid(2 u) with u as in `elementwise`."""
    slope = x
    if GATE == "gelu_tanh":
        slope = 1.5957691216057308 * x * (1.0 + 0.044715 * x * x)
    return x / (1.0 + tl.exp(-tl.maximum(slope, -80.0)))  # exp stays finite


@triton.jit(do_not_specialize=["rows"])
def _gemv_kernel(
    x_ptr, residual_ptr, norm_ptr, weight_ptr, bias_ptr, out_ptr, total_ptr, rows, eps, offset,
    ROWS: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr, HAS_NORM: tl.constexpr, HAS_BIAS: tl.constexpr, GATE: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """out = linear(rms_norm(total)) with total = x + residual, rounded to its dtype.

    If GATE is not empty, out = gate(first half) * second half; the weight has N rows for each half.
    """
    CHUNKS: tl.constexpr = (K + BLOCK_K - 1) // BLOCK_K
    EVEN_K: tl.constexpr = K % BLOCK_K == 0
    GATED: tl.constexpr = GATE != ""
    col = tl.arange(0, BLOCK_K)
    out_col = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    row = tl.minimum(out_col, N - 1)  # past the end the last row is read again, not stored
    at = weight_ptr + row.to(tl.int64)[:, None] * K + col[None, :]
    firsts = ()
    seconds = ()
    gains = ()
    for chunk in tl.static_range(CHUNKS):
        live = None if EVEN_K else (chunk * BLOCK_K + col < K)[None, :]
        other = None if EVEN_K else 0.0
        here = at + chunk * BLOCK_K
        firsts = firsts + (tl.load(here, live, other, eviction_policy="evict_first"),)
        if GATED:
            there = here + N * K
            seconds = seconds + (tl.load(there, live, other, eviction_policy="evict_first"),)
        if HAS_NORM:
            inside = chunk * BLOCK_K + col < K
            gains = gains + (tl.load(norm_ptr + chunk * BLOCK_K + col, mask=inside, other=0.0),)
    if HAS_BIAS:
        first_bias = tl.load(bias_ptr + row).to(tl.float32)
        if GATED:
            second_bias = tl.load(bias_ptr + N + row).to(tl.float32)
    await_previous(PDL)

    for token in tl.static_range(ROWS):
        first = tl.zeros([BLOCK_N, BLOCK_K], dtype=tl.float32)
        second = first
        square = tl.zeros([BLOCK_K], dtype=tl.float32)
        for chunk in tl.static_range(CHUNKS):
            k = chunk * BLOCK_K + col
            inside = (k < K) & (tl.full([BLOCK_K], token, tl.int32) < rows)
            x = tl.load(x_ptr + token * K + k, mask=inside, other=0.0)
            if HAS_RESIDUAL:
                residual = tl.load(residual_ptr + token * K + k, mask=inside, other=0.0)
                x = (x.to(tl.float32) + residual.to(tl.float32)).to(x.dtype)
                if tl.program_id(0) == 0:
                    tl.store(total_ptr + token * K + k, x, mask=inside)
            x = x.to(tl.float32)
            if HAS_NORM:
                square += x * x
                x *= gains[chunk].to(tl.float32) + offset
            first += firsts[chunk].to(tl.float32) * x[None, :]
            if GATED:
                second += seconds[chunk].to(tl.float32) * x[None, :]
        y = tl.sum(first, axis=1)
        if HAS_NORM:
            scale = 1.0 / tl.sqrt(tl.sum(square, axis=0) / K + eps)
            y *= scale
        if HAS_BIAS:
            y += first_bias
        if GATED:
            z = tl.sum(second, axis=1)
            if HAS_NORM:
                z *= scale
            if HAS_BIAS:
                z += second_bias
            y = gate_of(y, GATE) * z
        live = (out_col < N) & (tl.full([BLOCK_N], token, tl.int32) < rows)
        tl.store(out_ptr + token * N + out_col, y, mask=live)


class Norm(NamedTuple):
    """The norm before a projection: weight [K], eps, and the offset added to the weight."""

    weight: Tensor
    eps: float
    offset: float


class Tiles(NamedTuple):
    """Outputs per program, columns of the weight loaded at a time, and warps."""

    block_n: int
    block_k: int
    warps: int


def gemv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    *,
    gate: str | None = None,
    norm: Norm | None = None,
    residual: Tensor | None = None,
    tiles: Tiles | None = None,
) -> tuple[Tensor, Tensor]:
    """(linear(norm(total)) [T,N], total [T,K]), T >= 1; `tiles` overrides the choice."""
    rows, cols = x.shape
    n = weight.shape[0] // (2 if gate else 1)
    x = x.contiguous()
    total = x if residual is None else torch.empty_like(x)
    out = torch.empty((rows, n), dtype=x.dtype, device=x.device)
    block_n, block_k, warps = tiles or choose_tiles(
        rows, cols, normed=norm is not None, gated=gate is not None
    )
    _gemv_kernel[(triton.cdiv(n, block_n),)](
        x,
        x if residual is None else residual.contiguous(),
        x if norm is None else norm.weight,
        weight,
        x if bias is None else bias,
        out,
        total,
        rows,
        0.0 if norm is None else norm.eps,
        0.0 if norm is None else norm.offset,
        ROWS=triton.next_power_of_2(rows), N=n, K=cols,
        HAS_RESIDUAL=residual is not None, HAS_NORM=norm is not None, HAS_BIAS=bias is not None,
        GATE=gate or "", BLOCK_N=block_n, BLOCK_K=block_k,
        **dependent(x), num_warps=warps,
    )  # fmt: skip
    return out, total


def registers(tiles: Tiles, k: int) -> int:
    """32-bit registers that a thread needs for its half-precision weights (one half if gated)."""
    chunks: int = triton.cdiv(k, tiles.block_k)
    return tiles.block_n * chunks * tiles.block_k // (64 * tiles.warps)


def suits(rows: int, k: int, *, plain: bool) -> bool:
    """Whether this kernel is the fastest for so many rows, which it multiplies one by one.

    `plain`: without a gate, and without a norm, which every program would repeat for every row.
    """
    return rows == 1 or (plain and rows <= (4 if k <= 3072 else 2) and k <= 4096)


def choose_tiles(rows: int, k: int, *, normed: bool, gated: bool) -> Tiles:
    """Tiles with 6 to 64 KiB of weights per program, chosen by columns (measured on an H200).

    Several rows need few warps, because each row's sums are reduced across warps. A long norm needs
    more weights per program, because every program repeats the norm.
    """
    if rows > 1:
        return Tiles(4, 256, 1) if k <= 1024 else Tiles(2, 512, 2)
    if k >= 4096:
        block_n = 2 if k <= 16_384 else 1
        return Tiles(2 * block_n if normed and not gated else block_n, 2048, 8)
    if k > 1024 and k % 1024:
        return Tiles(4 if normed and not gated else 2, 512, 2)
    return (
        Tiles(max(1, 4096 // triton.next_power_of_2(k)), 1024, 4) if k > 512 else Tiles(8, 512, 2)
    )
