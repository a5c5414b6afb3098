"""Log-softmax scores of tokens, and the most likely tokens, equal logits in the order of ids."""

import torch
from torch import Tensor

_LOW = 0x7FFFFFFF


def score_tokens(
    logits: Tensor, tokens: Tensor, count: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    logits = logits.float()
    peak = logits.amax(dim=-1, keepdim=True)
    normaliser = (logits - peak).exp_().sum(dim=-1, keepdim=True).log_()
    own = logits.gather(1, tokens.unsqueeze(1))
    top_ids = _most_likely(logits, count)
    top = logits.gather(1, top_ids)
    return (
        ((own - peak) - normaliser).squeeze(1),
        (logits > own).sum(dim=-1) + 1,
        top_ids,
        (top - peak) - normaliser,
    )


def _most_likely(logits: Tensor, count: int) -> Tensor:
    """Ids of the largest logits [N, count]."""
    if count == 0:
        return torch.empty((len(logits), 0), dtype=torch.int64, device=logits.device)
    bits = (logits + 0.0).view(torch.int32)  # -0.0 becomes 0.0: the two must tie
    ordered = (bits ^ ((bits >> 31) & _LOW)).long()  # an integer that orders as the float does
    ids = torch.arange(logits.shape[1], device=logits.device)
    unique = (ordered << 32) | (_LOW - ids)
    return _LOW - (unique.topk(count, dim=-1).values & _LOW)
