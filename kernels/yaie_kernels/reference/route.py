"""Selection of each token's experts from the router's logits; `ops.route_experts` cites sources."""

import torch
from torch import Tensor


def route_experts(
    logits: Tensor,
    bias: Tensor | None,
    *,
    top_k: int,
    sigmoid: bool,
    normalize: bool,
    scale: float,
    groups: int,
    kept_groups: int,
    group_best: int,
) -> tuple[Tensor, Tensor]:
    wide = logits.float()
    scores = wide.sigmoid() if sigmoid else wide.softmax(-1)
    ranks = scores if bias is None else scores + bias
    if kept_groups < groups:
        ranks = _within_best(ranks.view(len(ranks), groups, -1), kept_groups, group_best)
    experts = ranks.topk(top_k, dim=-1).indices
    shares = scores.gather(-1, experts)
    if normalize:
        shares = shares / (shares.sum(-1, keepdim=True) + 1e-20)  # no 0 / 0, as in DeepSeek-V3
    return experts, shares * scale


def _within_best(ranks: Tensor, kept_groups: int, group_best: int) -> Tensor:
    """ranks[T,groups,E/groups] -> [T,E], -inf outside the token's `kept_groups` best groups."""
    worth = ranks.topk(group_best, dim=-1).values.sum(-1)
    kept = worth.topk(kept_groups, dim=-1).indices
    outside = torch.ones_like(worth, dtype=torch.bool).scatter_(-1, kept, value=False)
    return ranks.masked_fill(outside.unsqueeze(-1), -torch.inf).flatten(1)
