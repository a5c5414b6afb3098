"""Operations that PyTorch provides as one fused call, for the arguments that `limits` accepts."""

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention, silu


def rms_norm(x: Tensor, weight: Tensor, eps: float, offset: float = 0.0) -> Tensor:  # noqa: ARG001 - 0
    return torch.rms_norm(x, weight.shape, weight, eps)


def silu_mul(gate_up: Tensor) -> Tensor:
    gate, up = gate_up.chunk(2, dim=-1)
    return silu(gate) * up


def flash_attention(q: Tensor, k: Tensor, v: Tensor, *, scale: float, causal: bool) -> Tensor:
    return scaled_dot_product_attention(
        q, k, v, scale=scale, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1]
    )
