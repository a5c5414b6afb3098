"""Exact, reproducible sampling: integer weights, integer sums, one 62-bit draw a row.

A token's weight is trunc(2**40 * exp((logit - max) / temperature)), computed with float32
operations that round the same way everywhere. Sums of integers do not depend on their order, so
every device and every split of the vocabulary finds the same token for the same logits:

    temperature -> top-k -> top-p -> min-p -> first token whose running sum passes r * total

Filters compare values, so tokens tied with the last one kept are kept too.
"""

# ruff: noqa: PLR0917 - the operations' signatures are positional by contract

import torch
from torch import Tensor

from yaie_kernels.philox import targets

GREEDY_BELOW = 1e-5  # temperatures under this are argmax; 1/T would overflow float32
LOG2_E = 1.4426950408889634
WEIGHT_BITS = 40
FLOOR_LOG2 = -64.0  # any exponent this low truncates to weight 0
# 2**f on [0, 1], relative error 8.3e-8 (float32 rounds at 6.0e-8); exactly 1 at 0.
EXP2 = (
    0.0018671301659196615,
    0.009017029777169228,
    0.05579991266131401,
    0.24016444385051727,
    0.6931512951850891,
    1.0,
)
_FEW = 256  # candidates tried for top-p before the whole row is sorted; with top-k, k of them
_SPARE = 8  # and a few for ties


def greedy(logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    peak, tokens = logits.max(dim=-1)
    finite = peak.isfinite()
    return tokens * finite, finite, peak.float().masked_fill(peak.isnan(), torch.inf)


def sample(
    logits: Tensor,
    temperature: Tensor,
    top_k: Tensor,
    top_p: Tensor,
    min_p: Tensor,
    seed: Tensor,
    position: Tensor,
    *,
    rows: Tensor | None = None,
    filtered: bool = True,
) -> tuple[Tensor, Tensor, Tensor]:
    if rows is not None:
        temperature, top_k, top_p = temperature[rows], top_k[rows], top_p[rows]
        min_p, seed = min_p[rows], seed[rows]
    best, finite, peak = greedy(logits)
    cold = [value < GREEDY_BELOW for value in temperature.tolist()]
    if all(cold):
        return best, finite, peak
    logits = logits.float()
    chosen = torch.tensor(cold, device=logits.device) if any(cold) else None
    weights = token_weights(logits, _masked(temperature, chosen, 1.0))
    if filtered:
        _filter(logits, weights, _masked(top_k, chosen, 0), _masked(top_p, chosen, 1.0))
    _drop_unlikely(weights, min_p)
    sums = weights.cumsum_(dim=-1)
    target = targets(seed, position, sums[:, -1].clamp(min=1))
    ids = torch.searchsorted(sums, target.unsqueeze(1), right=True).squeeze(1)
    ids.clamp_(max=logits.shape[1] - 1)
    drawn = ids * finite
    return drawn if chosen is None else torch.where(chosen, best, drawn), finite, peak


def _masked(values: Tensor, rows: Tensor | None, value: float) -> Tensor:
    return values if rows is None else values.masked_fill(rows, value)


def token_weights(logits: Tensor, temperature: Tensor) -> Tensor:
    """logits[B,V] float32, temperature[B] -> [B,V] int64, the largest of a row exactly 2**40."""
    x = logits * temperature.reciprocal().unsqueeze(1)
    x.sub_(x.amax(dim=-1, keepdim=True)).mul_(LOG2_E).clamp_(min=FLOOR_LOG2)
    whole = x.floor()
    x.sub_(whole)
    power = torch.full_like(x, EXP2[0])
    for coefficient in EXP2[1:]:
        power.mul_(x).add_(coefficient)  # two roundings, as without fused multiply-add
    exponent = whole.add_(WEIGHT_BITS).to(torch.int32).bitwise_left_shift_(23)
    power.view(torch.int32).add_(exponent)  # times 2**(whole + 40), exactly
    return power.to(torch.int64)


def _filter(logits: Tensor, weights: Tensor, top_k: Tensor, top_p: Tensor) -> None:
    """Zero the weights of tokens that top-k and top-p drop."""
    vocab = logits.shape[1]
    counts: list[int] = top_k.tolist()
    by_count = [row for row, count in enumerate(counts) if 0 < count < vocab]
    by_mass = [row for row, share in enumerate(top_p.tolist()) if share < 1.0]
    if by_count:
        rows = _rows(by_count, logits)
        _drop_below(logits, weights, rows, _keep_top_k(logits[rows], top_k[rows]))
    if by_mass:
        rows = _rows(by_mass, logits)
        few = max(counts[row] or _FEW for row in by_mass) + _SPARE
        least = _keep_top_p(logits[rows], weights[rows], top_p[rows], min(few, vocab))
        _drop_below(logits, weights, rows, least)


def _drop_unlikely(weights: Tensor, min_p: Tensor) -> None:
    """Zero the weights of tokens that min-p drops."""
    if any(share > 0 for share in min_p.tolist()):
        floor = (min_p * float(2**WEIGHT_BITS)).ceil().long()
        weights.masked_fill_(weights < floor.unsqueeze(1), 0)


def _rows(chosen: list[int], like: Tensor) -> Tensor | slice:
    """An index of these rows; a slice, which copies nothing, where they are all."""
    if len(chosen) == len(like):
        return slice(None)
    return torch.tensor(chosen, device=like.device)


def _drop_below(logits: Tensor, weights: Tensor, rows: Tensor | slice, least: Tensor) -> None:
    weights[rows] = weights[rows].masked_fill_(logits[rows] < least.unsqueeze(1), 0)


def _keep_top_k(logits: Tensor, top_k: Tensor) -> Tensor:
    """The k-th largest logit of each row: [B]."""
    ranked = logits.topk(int(top_k.max()), dim=-1).values
    return ranked.gather(1, top_k.long().unsqueeze(1) - 1).squeeze(1)


def _keep_top_p(logits: Tensor, weights: Tensor, top_p: Tensor, count: int) -> Tensor:
    """The smallest logit of the smallest set that holds top_p of the mass: [B].

    Looks at the `count` largest first, and at the whole row if they do not settle it.
    """
    mass = weights.sum(dim=-1)
    goal = (top_p.double() * mass.double()).ceil().long().clamp_(min=1).unsqueeze(1)
    while True:
        ranked, tokens = logits.topk(count, dim=-1)
        held = weights.gather(1, tokens)
        before = held.cumsum(dim=-1).sub_(held)
        kept = (before < goal).sum(dim=-1, keepdim=True)
        if count == logits.shape[1] or not bool((kept == count).any()):
            return ranked.gather(1, kept - 1).squeeze(1)
        count = logits.shape[1]
