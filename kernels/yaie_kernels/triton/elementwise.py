"""Norms, rotary embedding and gated activations, in float32 arithmetic, rounded once.

Sources: RMSNorm (arXiv:1910.07467), RoPE (arXiv:2104.09864), gated activations (arXiv:2002.05202).
"""

# ruff: noqa: PLR0917, D403 - a kernel takes pointers and strides; its docstring is its formula


# mypy: disable-error-code="no-untyped-def"

import torch
import triton
import triton.language as tl
from torch import Tensor

from yaie_kernels.triton.launch import await_previous, dependent

_ROW_ELEMENTS = 2048  # a program takes several short rows (qk-norm) or one long row
_COLUMNS = 1024


@triton.jit(do_not_specialize=["n_rows"])
def _rms_norm_kernel(
    x_ptr, weight_ptr, out_ptr,
    n_rows, n_heads, token_stride, head_stride, n_cols, eps, offset,
    BLOCK_ROWS: tl.constexpr, BLOCK_COLS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """out = x * rsqrt(mean(x**2) + eps) * (weight + offset).

    Row r is (token r/heads, head r%heads).
    """
    await_previous(PDL)
    row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    col = tl.arange(0, BLOCK_COLS)
    mask = (row < n_rows)[:, None] & (col < n_cols)[None, :]
    base = (row // n_heads) * token_stride + (row % n_heads) * head_stride
    x = tl.load(x_ptr + base[:, None] + col[None, :], mask=mask, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + col, mask=col < n_cols, other=0.0).to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(x * x, axis=1) / n_cols + eps)
    out = x * scale[:, None] * (weight + offset)[None, :]
    tl.store(out_ptr + row[:, None] * n_cols + col[None, :], out, mask=mask)


@triton.jit(do_not_specialize=["n_rows"])
def _add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr,
    n_rows, x_stride, residual_stride, n_cols, eps, offset,
    BLOCK_ROWS: tl.constexpr, BLOCK_COLS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """total = x + residual, rounded to its dtype; out = rms_norm(total)."""
    await_previous(PDL)
    row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    col = tl.arange(0, BLOCK_COLS)
    mask = (row < n_rows)[:, None] & (col < n_cols)[None, :]
    x = tl.load(x_ptr + row[:, None] * x_stride + col[None, :], mask=mask, other=0.0)
    residual = tl.load(
        residual_ptr + row[:, None] * residual_stride + col[None, :], mask=mask, other=0.0
    )
    weight = tl.load(weight_ptr + col, mask=col < n_cols, other=0.0).to(tl.float32)
    total = (x.to(tl.float32) + residual.to(tl.float32)).to(total_ptr.dtype.element_ty)
    tl.store(total_ptr + row[:, None] * n_cols + col[None, :], total, mask=mask)
    total = total.to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(total * total, axis=1) / n_cols + eps)
    out = total * scale[:, None] * (weight + offset)[None, :]
    tl.store(out_ptr + row[:, None] * n_cols + col[None, :], out, mask=mask)


@triton.jit
def _rope_kernel(
    q_ptr, k_ptr, positions_ptr, cos_sin_ptr,
    q_token_stride, q_head_stride, k_token_stride, k_head_stride,
    q_heads, k_heads, half,
    BLOCK_HEADS: tl.constexpr, BLOCK_HALF: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """(left, right) <- (left cos - right sin, right cos + left sin) for every head of a token."""
    await_previous(PDL)
    token = tl.program_id(0).to(tl.int64)
    position = tl.load(positions_ptr + token)
    col = tl.arange(0, BLOCK_HALF)
    live = col < half
    cos = tl.load(cos_sin_ptr + position * 2 * half + col, mask=live, other=0.0)[None, :]
    sin = tl.load(cos_sin_ptr + position * 2 * half + half + col, mask=live, other=0.0)[None, :]
    head = tl.program_id(1) * BLOCK_HEADS + tl.arange(0, BLOCK_HEADS)
    is_q = head < q_heads
    q_row = q_ptr + token * q_token_stride + head * q_head_stride
    k_row = k_ptr + token * k_token_stride + (head - q_heads) * k_head_stride
    left_ptr = tl.where(is_q, q_row, k_row)[:, None] + col[None, :]
    mask = (head < q_heads + k_heads)[:, None] & live[None, :]
    left = tl.load(left_ptr, mask=mask, other=0.0).to(tl.float32)
    right = tl.load(left_ptr + half, mask=mask, other=0.0).to(tl.float32)
    tl.store(left_ptr, left * cos - right * sin, mask=mask)
    tl.store(left_ptr + half, right * cos + left * sin, mask=mask)


@triton.jit
def _act_mul_kernel(
    gate_up_ptr, out_ptr, row_stride, n_cols,
    GELU_TANH: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """out = gate * sigmoid(s) * up; s is gate for SiLU, and 2 u (below) for GELU's tanh form."""
    await_previous(PDL)
    row = tl.program_id(0).to(tl.int64)
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = col < n_cols
    gate = tl.load(gate_up_ptr + row * row_stride + col, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(gate_up_ptr + row * row_stride + n_cols + col, mask=mask, other=0.0)
    slope = gate
    if GELU_TANH:  # 0.5 (1 + tanh(u)) = sigmoid(2 u), u = sqrt(2 / pi) (gate + 0.044715 gate^3)
        slope = 1.5957691216057308 * gate * (1.0 + 0.044715 * gate * gate)
        slope = tl.maximum(slope, -80.0)  # exp stays finite
    out = gate / (1.0 + tl.exp(-slope)) * up.to(tl.float32)
    tl.store(out_ptr + row * n_cols + col, out, mask=mask)


def _row_blocks(rows: int, cols: int) -> tuple[int, int, int, int]:
    """(programs, BLOCK_ROWS, BLOCK_COLS, num_warps) for rows of `cols` elements."""
    block_cols = triton.next_power_of_2(cols)
    block_rows = max(1, min(_ROW_ELEMENTS // block_cols, triton.next_power_of_2(rows)))
    warps = min(16, max(1, block_rows * block_cols // 512))
    return triton.cdiv(rows, block_rows), block_rows, block_cols, warps


def rms_norm(x: Tensor, weight: Tensor, eps: float, offset: float = 0.0) -> Tensor:
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    cols = x.shape[-1]
    rows = x.numel() // cols
    if rows == 0:
        return out
    heads = x.shape[1] if x.dim() == 3 else 1
    head_stride = x.stride(1) if x.dim() == 3 else 0
    programs, block_rows, block_cols, warps = _row_blocks(rows, cols)
    _rms_norm_kernel[(programs,)](
        x, weight, out, rows, heads, x.stride(0), head_stride, cols, eps, offset,
        BLOCK_ROWS=block_rows, BLOCK_COLS=block_cols, **dependent(x), num_warps=warps,
    )  # fmt: skip
    return out


def add_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float, offset: float = 0.0
) -> tuple[Tensor, Tensor]:
    rows, cols = x.shape
    out = torch.empty((rows, cols), dtype=x.dtype, device=x.device)
    total = torch.empty_like(out)
    if rows:
        programs, block_rows, block_cols, warps = _row_blocks(rows, cols)
        _add_rms_norm_kernel[(programs,)](
            x, residual, weight, out, total,
            rows, x.stride(0), residual.stride(0), cols, eps, offset,
            BLOCK_ROWS=block_rows, BLOCK_COLS=block_cols, **dependent(x), num_warps=warps,
        )  # fmt: skip
    return out, total


def rope_(q: Tensor, k: Tensor, positions: Tensor, cos_sin: Tensor) -> None:
    tokens, q_heads, _ = q.shape
    heads = q_heads + k.shape[1]
    if tokens == 0:
        return
    half = cos_sin.shape[1] // 2
    block_half = triton.next_power_of_2(half)
    block_heads = min(triton.next_power_of_2(heads), max(1, 1024 // block_half))
    _rope_kernel[(tokens, triton.cdiv(heads, block_heads))](
        q, k, positions, cos_sin,
        q.stride(0), q.stride(1), k.stride(0), k.stride(1), q_heads, k.shape[1], half,
        BLOCK_HEADS=block_heads, BLOCK_HALF=block_half, **dependent(q), num_warps=4,
    )  # fmt: skip


def silu_mul(gate_up: Tensor) -> Tensor:
    return _act_mul(gate_up, gelu_tanh=False)


def gelu_tanh_mul(gate_up: Tensor) -> Tensor:
    return _act_mul(gate_up, gelu_tanh=True)


def _act_mul(gate_up: Tensor, *, gelu_tanh: bool) -> Tensor:
    rows, cols = gate_up.shape[0], gate_up.shape[1] // 2
    out = torch.empty((rows, cols), dtype=gate_up.dtype, device=gate_up.device)
    if rows:
        _act_mul_kernel[(rows, triton.cdiv(cols, _COLUMNS))](
            gate_up, out, gate_up.stride(0), cols,
            GELU_TANH=gelu_tanh, BLOCK=_COLUMNS, **dependent(out), num_warps=4,
        )  # fmt: skip
    return out
