"""Norms, rotary embedding and gated activations: the row-wise operations of a layer.

Half-precision inputs are computed in float32 and rounded once, at the end, as in the kernels.
RMSNorm: Zhang & Sennrich 2019 (arXiv:1910.07467); RoPE: Su et al. 2021 (arXiv:2104.09864), in
GPT-NeoX's layout; gated activations (SwiGLU, GEGLU): Shazeer 2020 (arXiv:2002.05202).
"""

import torch
from torch import Tensor
from torch.nn.functional import gelu, silu

_HALF = (torch.bfloat16, torch.float16)


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.dtype in _HALF else x


def rms_norm(x: Tensor, weight: Tensor, eps: float, offset: float = 0.0) -> Tensor:
    wide, factor = _wide(x), _wide(weight)
    if offset:
        factor = factor + offset
    scale: Tensor = torch.linalg.vecdot(wide, wide).div_(wide.shape[-1]).add_(eps).rsqrt_()
    normed: Tensor = (wide * scale.unsqueeze(-1)).mul_(factor)
    return normed.to(x.dtype)


def add_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float, offset: float = 0.0
) -> tuple[Tensor, Tensor]:
    total = x + residual
    return rms_norm(total, weight, eps, offset), total


def rope_(q: Tensor, k: Tensor, positions: Tensor, cos_sin: Tensor) -> None:
    rows = cos_sin.index_select(0, positions).unsqueeze(1)  # [T, 1, R]
    joined = _joined(q, k)
    if joined is not None:
        rotate(joined, rows)
        return
    rotate(q, rows)
    rotate(k, rows)


def rotate(x: Tensor, rows: Tensor) -> None:
    """Rotate the first R dimensions of x[T,H,D] in place; pairs are (i, i + R/2)."""
    rotated = rows.shape[-1]
    half = rotated // 2
    cos, sin = rows[..., :half], rows[..., half:]
    left, right = x[..., :half], x[..., half:rotated]
    wide_left, wide_right = _wide(left), _wide(right)
    turned = (wide_left * cos).addcmul_(wide_right, sin, value=-1)
    right.copy_((wide_right * cos).addcmul_(wide_left, sin))
    left.copy_(turned)


def _joined(q: Tensor, k: Tensor) -> Tensor | None:
    """One view [T, Hq+Hk, D] of q and k if they are adjacent in a fused projection, else None."""
    tokens, q_heads, width = q.shape
    neighbours = (
        q.stride() == k.stride()
        and q.untyped_storage().data_ptr() == k.untyped_storage().data_ptr()
        and k.storage_offset() == q.storage_offset() + q_heads * q.stride(1)
    )
    if not neighbours:
        return None
    return q.as_strided((tokens, q_heads + k.shape[1], width), q.stride())


def silu_mul(gate_up: Tensor) -> Tensor:
    gate, up = _wide(gate_up).chunk(2, dim=-1)
    return silu(gate).mul_(up).to(gate_up.dtype)


def gelu_tanh_mul(gate_up: Tensor) -> Tensor:
    gate, up = _wide(gate_up).chunk(2, dim=-1)
    return gelu(gate, approximate="tanh").mul_(up).to(gate_up.dtype)
