"""Norms, rotary embedding and gated activation: row-wise operations of a layer.

Half-precision inputs are computed in float32 and rounded once, at the end, as the kernels do.
"""

import torch
from torch import Tensor
from torch.nn.functional import silu

_HALF = (torch.bfloat16, torch.float16)


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.dtype in _HALF else x


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    wide = _wide(x)
    scale: Tensor = torch.linalg.vecdot(wide, wide).div_(wide.shape[-1]).add_(eps).rsqrt_()
    normed: Tensor = (wide * scale.unsqueeze(-1)).mul_(_wide(weight))
    return normed.to(x.dtype)


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    total = x + residual
    return rms_norm(total, weight, eps), total


def rope_(q: Tensor, k: Tensor, positions: Tensor, cos_sin: Tensor) -> None:
    rows = cos_sin.index_select(0, positions).unsqueeze(1)  # [T, 1, D]
    joined = _joined(q, k)
    if joined is not None:
        _rotate(joined, rows)
        return
    _rotate(q, rows)
    _rotate(k, rows)


def _rotate(x: Tensor, rows: Tensor) -> None:
    """x[T,H,D] *= rotation; pairs are (i, i + D/2)."""
    half = x.shape[-1] // 2
    cos, sin = rows[..., :half], rows[..., half:]
    left, right = x[..., :half], x[..., half:]
    wide_left, wide_right = _wide(left), _wide(right)
    turned = (wide_left * cos).addcmul_(wide_right, sin, value=-1)
    right.copy_((wide_right * cos).addcmul_(wide_left, sin))
    left.copy_(turned)


def _joined(q: Tensor, k: Tensor) -> Tensor | None:
    """One view [T, Hq+Hk, D] over q and k where they are neighbours in a fused projection."""
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
