"""Routing rules on numbers small enough to follow by hand."""

import math

import pytest
import torch

from yaie_kernels import route_experts


def choose(
    logits: list[float], bias: list[float] | None = None, **rule: object
) -> dict[int, float]:
    """Expert -> share of one token."""
    correction = None if bias is None else torch.tensor(bias)
    experts, shares = route_experts(torch.tensor([logits]), correction, **rule)
    assert experts.dtype == torch.int64
    assert shares.dtype == torch.float32
    return dict(zip(experts[0].tolist(), shares[0].tolist(), strict=True))


def logit(score: float) -> float:
    """The inverse of the sigmoid."""
    return math.log(score / (1 - score))


def test_shares_are_softmax_scores_over_all_experts() -> None:
    logits = [math.log(weight) for weight in (1.0, 4.0, 3.0, 2.0)]
    assert choose(logits, top_k=2) == pytest.approx({1: 0.4, 2: 0.3})


def test_normalized_shares_sum_to_one_before_they_are_scaled() -> None:
    logits = [math.log(weight) for weight in (1.0, 4.0, 3.0, 2.0)]
    got = choose(logits, top_k=2, normalize=True, scale=2.5)
    assert got == pytest.approx({1: 2.5 * 4 / 7, 2: 2.5 * 3 / 7})


def test_the_bias_chooses_and_leaves_the_shares_alone() -> None:
    logits = [logit(score) for score in (0.9, 0.5, 0.4, 0.1)]
    got = choose(logits, [0.0, 0.0, 0.2, 0.85], top_k=2, sigmoid=True)
    assert got == pytest.approx({0: 0.9, 3: 0.1})


def test_groups_by_their_best_expert() -> None:
    """The best group has the best expert; the second best two experts lie outside of it."""
    logits = [math.log(weight) for weight in (1.0, 8.0, 7.0, 6.0, 2.0, 3.0)]
    rule = {"groups": 3, "kept_groups": 1, "group_best": 1}
    assert set(choose(logits, top_k=2, **rule)) == {0, 1}


def test_groups_by_the_sum_of_their_two_best() -> None:
    """0.7 + 0.6 beats 0.9 + 0.1, though 0.9 is the best of all."""
    scores = [0.9, 0.1, 0.05, 0.7, 0.6, 0.01]
    logits = [logit(score) for score in scores]
    rule = {"groups": 2, "kept_groups": 1, "group_best": 2, "sigmoid": True}
    assert choose(logits, top_k=2, **rule) == pytest.approx({3: 0.7, 4: 0.6})


def test_experts_of_kept_groups_are_chosen_even_with_negative_ranks() -> None:
    """A mask of zeros would choose an expert of another group before one with a negative rank."""
    logits = [logit(score) for score in (0.9, 0.8, 0.2, 0.3)]
    bias = [0.0, -1.5, -0.5, -0.5]
    rule = {"groups": 2, "kept_groups": 1, "group_best": 1, "sigmoid": True}
    assert set(choose(logits, bias, top_k=2, **rule)) == {0, 1}


def test_half_precision_logits_are_scored_in_float32() -> None:
    logits = torch.randn(3, 16).bfloat16()
    experts, shares = route_experts(logits, None, top_k=4)
    assert torch.equal(shares, logits.float().softmax(-1).gather(1, experts))
