"""Mixture-of-experts MLP: each token passes through its chosen experts (arXiv:1701.06538)."""

import torch
from torch import Tensor
from torch.nn.functional import linear

from yaie_kernels.reference.elementwise import silu_mul


def moe_mlp(x: Tensor, gate_up: Tensor, down: Tensor, experts: Tensor, shares: Tensor) -> Tensor:
    """Compute only experts that have tokens, and read their weights without a copy."""
    top_k = experts.shape[1]
    chosen, weight = experts.flatten(), shares.flatten().unsqueeze(1)
    order = chosen.argsort(stable=True)
    counts: list[int] = torch.bincount(chosen, minlength=gate_up.shape[0]).tolist()
    out = torch.zeros(x.shape, dtype=torch.promote_types(x.dtype, shares.dtype), device=x.device)
    for expert, pairs in enumerate(torch.split(order, counts)):
        if len(pairs):
            tokens = pairs // top_k
            inner = silu_mul(linear(x[tokens], gate_up[expert]))
            out.index_add_(0, tokens, linear(inner, down[expert]) * weight[pairs])
    return out.to(x.dtype)
