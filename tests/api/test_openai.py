import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yaie_api.errors import InvalidRequestError
from yaie_api.openai import (
    CONSTRAINTS,
    NOT_IMPLEMENTED,
    ChatCompletionRequest,
    CompletionRequest,
    DetokenizeRequest,
    TokenizeRequest,
    Usage,
    parse,
)

USER = {"role": "user", "content": "hi"}
KINDS = (ChatCompletionRequest, CompletionRequest, TokenizeRequest, DetokenizeRequest)


def chat(**fields: Any) -> ChatCompletionRequest:
    return parse(ChatCompletionRequest, {"messages": [USER]} | fields)


def test_null_means_omitted() -> None:
    names = set(ChatCompletionRequest.model_fields) - {"messages"} | NOT_IMPLEMENTED.keys()
    assert chat(**dict.fromkeys(names)) == chat()


def test_unknown_fields_are_accepted_and_known() -> None:
    assert chat(user="u", metadata={"a": 1}).model_extra == {"user": "u", "metadata": {"a": 1}}


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_constraints_are_never_ignored(name: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        chat(**{name: {}})
    assert (refused.value.param, refused.value.code) == (name, "unsupported_parameter")


HARMLESS: list[dict[str, Any]] = [
    {"n": 1}, {"best_of": 1}, {"logprobs": False}, {"top_logprobs": 0}, {"presence_penalty": 0},
    {"frequency_penalty": 0.0}, {"repetition_penalty": 1.0}, {"logit_bias": {}},
    {"tool_choice": "none"}, {"response_format": {"type": "text"}}, {"echo": False},
    {"suffix": ""}, {"modalities": ["text"]}, {"priority": 0},
]  # fmt: skip


@pytest.mark.parametrize("fields", HARMLESS, ids=str)
def test_values_that_ask_for_nothing_are_accepted(fields: dict[str, Any]) -> None:
    chat(**fields)


REFUSED: list[dict[str, Any]] = [
    {"n": 2}, {"n": True}, {"best_of": 2}, {"logprobs": True}, {"logprobs": 0},
    {"top_logprobs": 5}, {"presence_penalty": 0.1}, {"frequency_penalty": -1},
    {"repetition_penalty": 1.1}, {"logit_bias": {"1": 2}}, {"tools": []},
    {"tool_choice": "auto"}, {"response_format": {"type": "json_object"}}, {"echo": True},
    {"suffix": "x"}, {"modalities": ["audio"]}, {"priority": 3}, {"use_beam_search": True},
    {"bad_words": ["x"]}, {"allowed_token_ids": []}, {"prompt_logprobs": 0},
]  # fmt: skip


@pytest.mark.parametrize("fields", REFUSED, ids=str)
def test_values_that_would_be_ignored_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError, match="not supported") as refused:
        chat(**fields)
    assert refused.value.param == next(iter(fields))


@pytest.mark.parametrize(
    "message",
    [
        {"role": "tool", "content": "x", "tool_call_id": "1"},
        {"role": "assistant", "content": None, "tool_calls": [{}]},
        {"role": "function", "content": "x", "name": "f"},
    ],
)
def test_tool_messages_are_refused_in_words(message: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError, match="Tool calling is not supported"):
        parse(ChatCompletionRequest, {"messages": [USER, message]})


def test_messages_as_templates_read_them() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    request = parse(
        ChatCompletionRequest,
        {
            "messages": [
                {"role": "developer", "content": "brief"},
                {"role": "user", "content": parts, "name": "ann"},
                {"role": "assistant"},
            ]
        },
    )
    assert request.conversation() == [
        {"role": "system", "content": "brief"},
        {"role": "user", "content": "a\nb", "name": "ann"},
        {"role": "assistant", "content": ""},
    ]


def test_template_variables_come_from_two_fields() -> None:
    request = chat(chat_template_kwargs={"enable_thinking": False}, reasoning_effort="low")
    assert request.template_variables == {"enable_thinking": False, "reasoning_effort": "low"}


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [("a", ["a"]), ([1, 2], [[1, 2]]), (["a", "b"], ["a", "b"]), ([[1], [2, 3]], [[1], [2, 3]])],
)
def test_prompts_have_four_forms(prompt: Any, prompts: list[Any]) -> None:
    assert parse(CompletionRequest, {"prompt": prompt}).prompts() == prompts


@pytest.mark.parametrize("prompt", [[], [[]], [[1], []], ["a"] * 129])
def test_prompts_without_tokens_or_too_many_are_refused(prompt: Any) -> None:
    with pytest.raises(InvalidRequestError):
        parse(CompletionRequest, {"prompt": prompt}).prompts()


def test_tokenize_takes_exactly_one_input() -> None:
    for body in ({}, {"prompt": "a", "messages": [USER]}):
        with pytest.raises(InvalidRequestError, match="either prompt or messages"):
            parse(TokenizeRequest, body)


def test_stream_options_tell_about_usage() -> None:
    request = chat(stream=True, stream_options={"include_usage": True})
    assert request.include_usage
    assert not request.continuous_usage
    assert not chat(stream=True, stream_options={"include_usage": None}).include_usage


def test_usage_adds_up() -> None:
    total = Usage(prompt_tokens=1, completion_tokens=2, cached_tokens=1)
    total += Usage(prompt_tokens=10, completion_tokens=20)
    assert total.wire()["total_tokens"] == 33
    assert total.wire()["prompt_tokens_details"] == {"cached_tokens": 1}


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    containers,
    max_leaves=8,
)
names = st.sampled_from(
    sorted({name for kind in KINDS for name in kind.model_fields} | NOT_IMPLEMENTED.keys())
)
bodies = json_values | st.dictionaries(names, json_values, max_size=6)


@given(body=bodies, kind=st.sampled_from(KINDS))
def test_any_json_is_parsed_or_refused_in_words(body: Any, kind: Any) -> None:
    refused = None
    try:
        parse(kind, body)
    except InvalidRequestError as error:
        refused = error.envelope()["error"]
    assert refused is None or (refused["message"] and refused["type"] == "invalid_request_error")


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (CompletionRequest, {"prompt": [None] * 30_000}),
        (CompletionRequest, {"prompt": [*[""] * 30_000, 1]}),
        (CompletionRequest, {"prompt": [[None] * 30_000]}),
        (DetokenizeRequest, {"tokens": [None] * 30_000}),
        (ChatCompletionRequest, {"messages": [{}] * 2000}),
    ],
)
def test_a_long_list_of_wrong_things_is_refused_at_its_first(kind: Any, body: Any) -> None:
    tracemalloc.start()
    with pytest.raises(InvalidRequestError):
        parse(kind, body)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000


def test_a_body_that_is_too_wide_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="lists and objects"):
        parse(CompletionRequest, {"prompt": [[]] * 40_000})
    with pytest.raises(InvalidRequestError, match="fields"):
        parse(CompletionRequest, {"prompt": "x"} | {f"f{i}": 1 for i in range(300)})
