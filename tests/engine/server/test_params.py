import json
from pathlib import Path
from typing import Any

import pytest

from yaie.core.request import SamplingParams
from yaie.server.params import generation_defaults, sampling_params
from yaie_api.errors import ContextLengthError
from yaie_api.openai import CompletionRequest, parse


def params(
    *, prompt: int = 10, limit: int | None = None, default: int | None = None, **fields: Any
) -> SamplingParams:
    defaults = fields.pop("defaults", {})
    return sampling_params(
        parse(CompletionRequest, {"prompt": "x"} | fields),
        prompt_tokens=prompt,
        output_limit=limit,
        default_limit=default,
        context_tokens=100,
        defaults=defaults,
    )


def test_without_a_limit_the_context_is_the_limit() -> None:
    assert params().max_tokens == 90


def test_a_default_limit_shrinks_to_the_room_that_is_left() -> None:
    assert params(default=16).max_tokens == 16
    assert params(default=16, prompt=95).max_tokens == 5


@pytest.mark.parametrize(("prompt", "limit"), [(10, 91), (100, None), (100, 1), (500, 16)])
def test_what_does_not_fit_is_refused(prompt: int, limit: int | None) -> None:
    with pytest.raises(ContextLengthError, match="maximum context length is 100 tokens"):
        params(prompt=prompt, limit=limit)


def test_exactly_full_is_fine() -> None:
    assert params(prompt=10, limit=90).max_tokens == 90


def test_the_request_wins_over_the_model_s_defaults() -> None:
    defaults = {"temperature": 0.6, "top_k": 20}
    chosen = params(defaults=defaults, temperature=0)
    assert (chosen.temperature, chosen.top_k, chosen.top_p) == (0, 20, 1.0)


def test_every_field_arrives() -> None:
    chosen = params(
        stop=["a"], stop_token_ids=[3], ignore_eos=True, seed=5, min_tokens=2, min_p=0.1,
        skip_special_tokens=False, include_stop_str_in_output=True,
    )  # fmt: skip
    assert chosen == SamplingParams(
        stop=("a",), stop_token_ids=(3,), ignore_eos=True, seed=5, min_tokens=2, min_p=0.1,
        skip_special_tokens=False, include_stop_str_in_output=True, max_tokens=90,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("config", "defaults"),
    [
        ({"temperature": 0.6, "top_k": 20, "eos_token_id": 3}, {"temperature": 0.6, "top_k": 20}),
        ({"temperature": 0.6, "do_sample": False}, {}),
        ({"temperature": -3}, {}),
        ({"top_p": None}, {}),
        ([1], {}),
    ],
)
def test_defaults_of_the_checkpoint(tmp_path: Path, config: Any, defaults: dict[str, Any]) -> None:
    (tmp_path / "generation_config.json").write_text(json.dumps(config))
    assert generation_defaults(tmp_path) == defaults


def test_no_or_broken_defaults_are_none(tmp_path: Path) -> None:
    assert generation_defaults(tmp_path) == {}
    (tmp_path / "generation_config.json").write_text("{")
    assert generation_defaults(tmp_path) == {}
