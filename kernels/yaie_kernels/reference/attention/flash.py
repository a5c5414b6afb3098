"""Attention over dense tensors, every score written out; its gradients are autograd's."""

import math

import torch
from torch import Tensor


def flash_attention(q: Tensor, k: Tensor, v: Tensor, *, scale: float, causal: bool) -> Tensor:
    batch, q_heads, queries, head_dim = q.shape
    kv_heads, keys = k.shape[1], k.shape[2]
    grouped = q.reshape(batch, kv_heads, q_heads // kv_heads, queries, head_dim)
    scores = torch.matmul(grouped, k.unsqueeze(2).transpose(-1, -2)) * scale
    if causal:
        hidden = torch.ones(queries, keys, dtype=torch.bool, device=q.device)
        hidden.triu_(keys - queries + 1)
        scores = scores.masked_fill(hidden, -math.inf)
        scores = scores.masked_fill(hidden.all(dim=1, keepdim=True), 0.0)  # softmax: no NaN
        shares = scores.softmax(-1).masked_fill(hidden, 0.0)
    else:
        shares = scores.softmax(-1)
    return torch.matmul(shares, v.unsqueeze(2)).reshape(batch, q_heads, queries, v.shape[-1])
