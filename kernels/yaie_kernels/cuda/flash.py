"""FlashAttention-2 (Dao 2023, arXiv:2307.08691) as an autograd function.

The forward pass saves each row's log-sum-exp, from which the backward pass recomputes the scores.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class _FlashAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool) -> Tensor:  # noqa: FBT001, PLR0917 - `apply` is positional
        out: Tensor
        out, lse = torch.ops.yaie.flash_attention_forward.default(q, k, v, scale, causal)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.scale, ctx.causal = scale, causal
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        grads: tuple[Tensor, Tensor, Tensor] = torch.ops.yaie.flash_attention_backward.default(
            grad_out, *ctx.saved_tensors, ctx.scale, ctx.causal
        )
        return *grads, None, None


def flash_attention(q: Tensor, k: Tensor, v: Tensor, *, scale: float, causal: bool) -> Tensor:
    out: Tensor = _FlashAttention.apply(q, k, v, scale, causal)
    return out
