"""Projections: own kernels for few rows in half precision, the library (cuBLAS) for the rest.

With one row of a small model the library reaches about a third of the memory's bandwidth, and with
some dozens of rows its products still wait for one another. Float32 always uses the library, so
that greedy tokens of that dtype do not depend on the batch.
"""

# ruff: noqa: PLR0917 - the operations' signatures are positional by contract

import torch
from torch import Tensor
from torch.nn import functional

from yaie_kernels.triton.elementwise import add_rms_norm, gelu_tanh_mul, rms_norm, silu_mul
from yaie_kernels.triton.projection import wide
from yaie_kernels.triton.projection.gemv import Norm, gemv, suits
from yaie_kernels.triton.projection.skinny import ROWS, skinny

_GATES = {"silu": silu_mul, "gelu_tanh": gelu_tanh_mul}
_HALF = (torch.bfloat16, torch.float16)
_MOST_COLUMNS = 4096


def linear(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, gate: str | None = None
) -> Tensor:
    if x.shape[0] <= wide.MOST and _in_vectors(x, weight):
        tiles = wide.choose(x, weight, gated=gate is not None)
        if tiles is not None:
            return wide.wide(x, weight, bias, tiles, gate=gate)
    if not _is_ours(x, weight):
        y = functional.linear(x, weight, bias)
        return y if gate is None else _GATES[gate](y)
    if suits(*x.shape, plain=gate is None):
        return gemv(x, weight, bias, gate=gate)[0]
    return skinny(x, weight, bias, gate=gate)


def norm_linear(
    x: Tensor,
    residual: Tensor | None,
    norm_weight: Tensor,
    eps: float,
    offset: float,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    gate: str | None = None,
) -> tuple[Tensor, Tensor]:
    if _is_ours(x, weight) and suits(*x.shape, plain=False):
        norm = Norm(norm_weight, eps, offset)
        return gemv(x, weight, bias, gate=gate, norm=norm, residual=residual)
    if residual is None:
        normed, total = rms_norm(x, norm_weight, eps, offset), x
    else:
        normed, total = add_rms_norm(x, residual, norm_weight, eps, offset)
    return linear(normed, weight, bias, gate=gate), total


def _is_ours(x: Tensor, weight: Tensor) -> bool:
    """Whether rows are few; for several rows of many columns the library is as fast (H200)."""
    most = ROWS if x.shape[1] <= _MOST_COLUMNS else 1
    return 0 < x.shape[0] <= most and _in_vectors(x, weight)


def _in_vectors(x: Tensor, weight: Tensor) -> bool:
    """Whether the dtype is half precision and the weight's rows are whole vectors of 16 bytes."""
    return (
        x.dtype in _HALF
        and weight.dtype == x.dtype
        and weight.is_contiguous()
        and weight.shape[1] % 8 == 0
    )
