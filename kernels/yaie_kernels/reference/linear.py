"""Projections; the norm before and the gate after a projection are separate operations."""

# ruff: noqa: PLR0917 - the operations' signatures are positional by contract

from torch import Tensor
from torch.nn import functional

from yaie_kernels.reference.elementwise import add_rms_norm, gelu_tanh_mul, rms_norm, silu_mul

_GATES = {"silu": silu_mul, "gelu_tanh": gelu_tanh_mul}


def linear(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, gate: str | None = None
) -> Tensor:
    y = functional.linear(x, weight, bias)
    return y if gate is None else _GATES[gate](y)


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
    if residual is None:
        normed, total = rms_norm(x, norm_weight, eps, offset), x
    else:
        normed, total = add_rms_norm(x, residual, norm_weight, eps, offset)
    return linear(normed, weight, bias, gate=gate), total
