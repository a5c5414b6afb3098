"""Sampling parameters: what is out of range is refused before it can reach a device."""

from typing import Any

import pytest

from yaie.core.request import SamplingParams
from yaie_api.errors import InvalidRequestError


@pytest.mark.parametrize(
    "field",
    [
        {"top_k": 2**31},
        {"top_k": -2},
        {"top_k": 1.0},
        {"temperature": float("nan")},
        {"temperature": float("inf")},
        {"temperature": -0.1},
        {"temperature": True},
        {"top_p": 0},
        {"top_p": float("nan")},
        {"min_p": 1.1},
        {"seed": 2**63},
        {"max_tokens": -1},
        {"n": 0},
        {"n": 129},
        {"logprobs": -2},
        {"repetition_penalty": 0.0},
        {"repetition_penalty": 1e-320},
        {"repetition_penalty": float("inf")},
        {"presence_penalty": 2.1},
        {"frequency_penalty": -2.1},
        {"logit_bias": ((-1, 1.0),)},
        {"logit_bias": {3: float("nan")}},
        {"logit_bias": 5},
        {"logit_bias": [5]},
        {"bad_words_ids": [5]},
        {"ignore_eos": "yes"},
        {"skip_special_tokens": 1},
        {"include_stop_str_in_output": None},
        {"grammar": "root ::= x"},
        {"allowed_token_ids": ()},
        {"bad_words": ("",)},
        {"min_tokens": -1},
        {"stop": ("",)},
        {"stop_token_ids": (-1,)},
    ],
)
def test_what_is_out_of_range_is_refused_by_its_name(field: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        SamplingParams(**field)
    assert caught.value.param == next(iter(field))


def test_the_ends_of_the_ranges_are_taken() -> None:
    params = SamplingParams(top_k=2**31 - 1, temperature=2, top_p=1, min_p=1, seed=-(2**63))
    assert params.top_k == 2**31 - 1
