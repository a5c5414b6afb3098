"""The routing kernel against the reference, rule by rule."""

from typing import Any

import pytest
import torch

from yaie_kernels import reference, triton
from yaie_kernels.testing import judge

PLAIN: dict[str, Any] = {
    "sigmoid": False,
    "normalize": False,
    "scale": 1.0,
    "groups": 1,
    "kept_groups": 1,
    "group_best": 1,
}
RULES: dict[str, tuple[int, dict[str, Any]]] = {
    "mixtral": (8, {"top_k": 2, "normalize": True}),
    "qwen3": (128, {"top_k": 8}),
    "qwen2": (60, {"top_k": 4}),
    "one of three": (3, {"top_k": 1}),
    "deepseek-v2": (160, {"top_k": 6, "groups": 8, "kept_groups": 3, "scale": 16.0}),
    "deepseek-v3": (
        256,
        {
            "top_k": 8,
            "sigmoid": True,
            "normalize": True,
            "scale": 2.5,
            "groups": 8,
            "kept_groups": 4,
            "group_best": 2,
        },
    ),
    "all groups kept": (12, {"top_k": 3, "sigmoid": True, "groups": 3, "kept_groups": 3}),
}


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("biased", [False, True])
def test_it_chooses_as_the_reference(name: str, biased: bool, device: str) -> None:
    count, rule = RULES[name]
    logits = torch.randn(9, count + 5, device=device)[:, :count]  # rows of a wider projection
    bias = torch.randn(count, device=device) if biased else None
    got, got_shares = triton.route_experts(logits, bias, **PLAIN | rule)
    want, shares = reference.route_experts(logits, bias, **PLAIN | rule)
    assert torch.equal(got, want)
    exact = reference_in_float64(logits, want, PLAIN | rule)
    judge("shares", got_shares, shares, exact)


def reference_in_float64(
    logits: torch.Tensor, experts: torch.Tensor, rule: dict[str, Any]
) -> torch.Tensor:
    wide = logits.double()
    shares = (wide.sigmoid() if rule["sigmoid"] else wide.softmax(-1)).gather(1, experts)
    if rule["normalize"]:
        shares = shares / shares.sum(-1, keepdim=True)
    return shares * rule["scale"]


def test_half_precision_logits(dtype: torch.dtype, device: str) -> None:
    logits = torch.randn(5, 16).to(dtype).to(device)
    experts, shares = triton.route_experts(logits, None, **PLAIN, top_k=2)
    best = logits.float().softmax(-1).topk(2)
    judge("shares", shares, best.values, logits.double().softmax(-1).topk(2).values)
    assert torch.equal(logits.gather(1, experts), logits.gather(1, best.indices))


@pytest.mark.filterwarnings("ignore:invalid value")  # numpy, in the interpreter
def test_a_row_that_is_not_finite_stays_within_the_experts(device: str) -> None:
    """Its shares are NaN, so that its output is; other rows are untouched."""
    logits = torch.randn(3, 6, device=device)
    want = triton.route_experts(logits, None, **PLAIN, top_k=2)
    logits[1] = torch.nan
    experts, shares = triton.route_experts(logits, None, **PLAIN, top_k=2)
    assert ((experts >= 0) & (experts < 6)).all()
    assert shares[1].isnan().all()
    for row in (0, 2):
        assert torch.equal(experts[row], want[0][row])
        assert torch.equal(shares[row], want[1][row])


def test_no_tokens_give_no_choices(device: str) -> None:
    logits = torch.empty(0, 8, device=device)
    experts, shares = triton.route_experts(logits, None, **PLAIN, top_k=2)
    assert experts.shape == shares.shape == (0, 2)
