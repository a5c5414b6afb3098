"""Selection of each token's experts in one launch: scores, best groups, best experts, shares.

`ops.route_experts` defines the formula and cites its sources.
"""

# ruff: noqa: PLR0917, D403 - a kernel takes pointers and strides; its docstring is its formula


# mypy: disable-error-code="no-untyped-def"

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _within_best(
    rank, lane, kept_groups,
    GROUPS: tl.constexpr, GROUP_SIZE: tl.constexpr, GROUP_BEST: tl.constexpr,
):  # fmt: skip
    """rank, or -inf in lanes whose group is not one of the best; the lower group wins a tie."""
    group = lane // GROUP_SIZE
    worth = tl.full(rank.shape, float("-inf"), dtype=tl.float32)
    for g in tl.static_range(GROUPS):
        left = tl.where(group == g, rank, float("-inf"))
        total = 0.0
        for _ in tl.static_range(GROUP_BEST):
            total += tl.max(left, axis=0)
            left = tl.where(lane == tl.argmax(left, axis=0), float("-inf"), left)
        worth = tl.where(group == g, total, worth)
    better = tl.zeros(rank.shape, dtype=tl.int32)
    for g in tl.static_range(GROUPS):
        other = tl.max(tl.where(group == g, worth, float("-inf")), axis=0)
        wins = (other > worth) | ((other == worth) & (g < group))
        better += wins.to(tl.int32)
    return tl.where(better < kept_groups, rank, float("-inf"))


@triton.jit
def _route_kernel(
    logits_ptr, bias_ptr, experts_ptr, shares_ptr,
    stride, num_experts, kept_groups, scale,
    SIGMOID: tl.constexpr, HAS_BIAS: tl.constexpr, NORMALIZE: tl.constexpr, TOP_K: tl.constexpr,
    GROUPS: tl.constexpr, GROUP_SIZE: tl.constexpr, GROUP_BEST: tl.constexpr,
    BLOCK_E: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """experts = the TOP_K best of score (+ bias) within the best groups; shares = their scores."""
    token = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK_E)
    live = lane < num_experts
    logit = tl.load(logits_ptr + token * stride + lane, mask=live, other=float("-inf"))
    logit = logit.to(tl.float32)
    if SIGMOID:
        score = 1.0 / (1.0 + tl.exp(-logit))
    else:
        score = tl.exp(logit - tl.max(logit, axis=0))
        score = score / tl.sum(score, axis=0)
    rank = score
    if HAS_BIAS:
        rank = score + tl.load(bias_ptr + lane, mask=live, other=0.0)
    rank = tl.where(live, rank, float("-inf"))
    if GROUPS > 1:
        rank = _within_best(rank, lane, kept_groups, GROUPS, GROUP_SIZE, GROUP_BEST)
    slot = tl.arange(0, BLOCK_K)
    chosen = tl.zeros([BLOCK_K], dtype=tl.int64)
    share = tl.zeros([BLOCK_K], dtype=tl.float32)
    for k in tl.static_range(TOP_K):
        # with non-finite ranks argmax may return any lane: keep it within the experts
        best = tl.maximum(tl.minimum(tl.argmax(rank, axis=0), num_experts - 1), 0)
        chosen = tl.where(slot == k, best.to(tl.int64), chosen)
        share = tl.where(slot == k, tl.sum(tl.where(lane == best, score, 0.0), axis=0), share)
        rank = tl.where(lane == best, float("-inf"), rank)
    if NORMALIZE:
        share = share / (tl.sum(share, axis=0) + 1e-20)
    wild = tl.where(live & (tl.abs(logit) < float("inf")), 0, 1)
    wild = tl.max(tl.where(live, wild, 0), axis=0)
    # a non-finite logit makes the token's output NaN, so that the error is detected
    share = tl.where(wild == 0, share, float("nan"))
    at = token * TOP_K + slot
    tl.store(experts_ptr + at, chosen, mask=slot < TOP_K)
    tl.store(shares_ptr + at, share * scale, mask=slot < TOP_K)


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
    tokens, num_experts = logits.shape
    experts = torch.empty((tokens, top_k), dtype=torch.int64, device=logits.device)
    shares = torch.empty((tokens, top_k), dtype=torch.float32, device=logits.device)
    if tokens:
        choosy = kept_groups < groups
        _route_kernel[(tokens,)](
            logits, logits if bias is None else bias, experts, shares,
            logits.stride(0), num_experts, kept_groups, scale,
            SIGMOID=sigmoid, HAS_BIAS=bias is not None, NORMALIZE=normalize, TOP_K=top_k,
            GROUPS=groups if choosy else 1, GROUP_SIZE=num_experts // groups,
            GROUP_BEST=group_best, BLOCK_E=triton.next_power_of_2(num_experts),
            BLOCK_K=triton.next_power_of_2(top_k), num_warps=1,
        )  # fmt: skip
    return experts, shares
