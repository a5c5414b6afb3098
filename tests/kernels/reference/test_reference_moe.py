"""The CPU experts against every expert computed on every token in float64."""

import pytest
import torch

from yaie_kernels import moe_mlp
from yaie_kernels.testing import judge, moe_case


@pytest.mark.parametrize("tokens", [0, 1, 33])
@pytest.mark.parametrize("top_k", [1, 2, 8])
def test_it_is_the_weighted_sum_of_the_chosen_experts(
    tokens: int, top_k: int, dtype: torch.dtype
) -> None:
    case = moe_case(tokens, experts=8, top_k=top_k, dtype=dtype)
    judge("moe", moe_mlp(*case.args), case.dense(dtype), case.dense())


def test_experts_without_tokens_are_not_visited() -> None:
    """Their weights are poisoned, so a look at them would show."""
    case = moe_case(20, experts=8, top_k=2)
    case.experts[case.experts == 3] = 4
    case.gate_up[3], case.down[3] = torch.nan, torch.nan
    assert torch.isfinite(moe_mlp(*case.args)).all()


def test_weights_are_not_copied() -> None:
    """A step may cost activations of its few pairs, never a copy of an expert."""
    case = moe_case(2, experts=4, top_k=1, hidden=256, inner=512)
    with torch.profiler.profile(profile_memory=True) as profile:
        moe_mlp(*case.args)
    largest = max(event.cpu_memory_usage for event in profile.events())
    assert largest < case.down[0].nbytes / 8
