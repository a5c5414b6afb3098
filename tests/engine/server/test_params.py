import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from yaie.config import ModelInfo
from yaie.core.request import SamplingParams
from yaie.server.params import generation_defaults, output_room, sampling_params
from yaie_api.errors import ContextLengthError, InvalidRequestError
from yaie_api.http.openai import CompletionRequest, parse

MODEL = ModelInfo(
    served_model_name="m",
    path="/m",
    architecture="A",
    parameters=1,
    weight_bytes=1,
    max_model_len=100,
    vocab_size=128,
    eos_token_ids=(0,),
    kv_pages=2,
    page_size=1,
    device="cpu",
    dtype="float32",
    max_logprobs=5,
)


class Words:
    """Each word is a token: its length. A space before it makes another one, beside an "x" it is
    one itself, and before a "y" it is nothing.
    """

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        assert not add_special_tokens
        if text == " x":
            return [99, 1]
        other = 50 * (text.startswith(" ") and text != " y")
        return [len(word) + other for word in text.split()]


def params(
    defaults: dict[str, Any] | None = None, model: ModelInfo = MODEL, **fields: Any
) -> SamplingParams:
    body = parse(CompletionRequest, {"prompt": "x"} | fields)
    return sampling_params(
        body,
        model,
        Words(),
        max_tokens=90,
        defaults=defaults or {},
        prompt_logprobs=body.prompt_logprobs,
    )


def room(*, prompt: int = 10, asked: int | None = None, default: int | None = None) -> int:
    return output_room(MODEL, prompt, asked, default=default, param="prompt")


def test_without_a_limit_the_context_is_the_limit() -> None:
    assert room() == 90


def test_a_default_limit_shrinks_to_the_room_that_is_left() -> None:
    assert room(default=16) == 16
    assert room(default=16, prompt=95) == 5


@pytest.mark.parametrize(("prompt", "asked"), [(10, 91), (100, None), (100, 1), (500, 0)])
def test_what_does_not_fit_is_refused(prompt: int, asked: int | None) -> None:
    with pytest.raises(ContextLengthError, match="maximum context length is 100 tokens") as refused:
        room(prompt=prompt, asked=asked)
    assert refused.value.param == "prompt"


def test_exactly_full_is_fine() -> None:
    assert room(prompt=10, asked=90) == 90
    assert room(prompt=100, asked=0) == 0


def test_a_negative_limit_is_refused_by_name() -> None:
    with pytest.raises(InvalidRequestError) as refused:
        room(asked=-1)
    assert refused.value.param == "max_tokens"


def test_one_output_is_enough_without_chance() -> None:
    with pytest.raises(InvalidRequestError) as refused:
        params(n=2, temperature=0)
    assert refused.value.param == "n"
    assert params(n=2, temperature=0.1).n == 2


def test_a_bad_word_is_banned_after_a_space_too_where_that_is_another_token() -> None:
    assert params(bad_words=["abc", "de fgh"]).bad_words_ids == ((3,), (53,), (2, 3), (52, 53))
    assert params(bad_words=[" x", "y"]).bad_words_ids == ((1,), (1,))


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"logit_bias": {"128": 1}}, "logit_bias"),
        ({"allowed_token_ids": [1, 128]}, "allowed_token_ids"),
        ({"stop_token_ids": [128]}, "stop_token_ids"),
        ({"logprobs": 6}, "logprobs"),
        ({"logprobs": -1}, "logprobs"),
    ],
)
def test_what_the_model_does_not_have_is_refused(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        params(**fields)
    assert refused.value.param == param


@pytest.mark.parametrize("most", [-1, 128, 1000])
def test_all_logprobs_may_be_asked_for_where_the_limit_allows_as_many(most: int) -> None:
    model = msgspec.structs.replace(MODEL, max_logprobs=most)
    chosen = params(logprobs=-1, prompt_logprobs=-1, model=model)
    assert (chosen.logprobs, chosen.prompt_logprobs) == (-1, -1)


def test_a_limit_that_forbids_all_logprobs_says_so() -> None:
    model = msgspec.structs.replace(MODEL, max_logprobs=127)
    with pytest.raises(InvalidRequestError, match="is -1, which asks for every token; it must be"):
        params(logprobs=-1, model=model)


def test_the_request_wins_over_the_model_s_defaults() -> None:
    defaults = {"temperature": 0.6, "top_k": 20}
    chosen = params(defaults, temperature=0)
    assert (chosen.temperature, chosen.top_k, chosen.top_p) == (0, 20, 1.0)


def test_every_field_arrives() -> None:
    chosen = params(
        stop=["a"], stop_token_ids=[3], ignore_eos=True, seed=5, min_tokens=2, min_p=0.1,
        skip_special_tokens=False, include_stop_str_in_output=True, n=2, presence_penalty=0.5,
        frequency_penalty=-0.5, repetition_penalty=1.2, logit_bias={"7": 3}, bad_words=["abc"],
        allowed_token_ids=[7, 8], logprobs=2,
    )  # fmt: skip
    assert chosen == SamplingParams(
        stop=("a",), stop_token_ids=(3,), ignore_eos=True, seed=5, min_tokens=2, min_p=0.1,
        skip_special_tokens=False, include_stop_str_in_output=True, max_tokens=90, n=2,
        presence_penalty=0.5, frequency_penalty=-0.5, repetition_penalty=1.2,
        logit_bias=((7, 3.0),), bad_words=("abc",), bad_words_ids=((3,), (53,)),
        allowed_token_ids=(7, 8), logprobs=2,
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
