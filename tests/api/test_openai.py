import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yaie_api.errors import InvalidRequestError
from yaie_api.http.openai import (
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
    request = chat(user="u", metadata={"a": 1}, surprise=1, guided_regex="a")
    assert request.unknown_fields == ["surprise"]


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_constraints_that_nobody_keeps_are_never_ignored(name: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        chat(**{name: {}})
    assert (refused.value.param, refused.value.code) == (name, "unsupported_parameter")


HARMLESS: list[dict[str, Any]] = [
    {"n": 1}, {"best_of": 1}, {"logprobs": False}, {"top_logprobs": 0}, {"logit_bias": {}},
    {"tool_choice": "none"}, {"response_format": {"type": "text"}}, {"echo": False},
    {"suffix": ""}, {"modalities": ["text"]}, {"priority": 0}, {"function_call": "none"},
    {"use_beam_search": False}, {"add_special_tokens": False},
]  # fmt: skip


@pytest.mark.parametrize("fields", HARMLESS, ids=str)
def test_values_that_ask_for_nothing_are_accepted(fields: dict[str, Any]) -> None:
    chat(**fields)


REFUSED: list[dict[str, Any]] = [
    {"functions": []}, {"function_call": "auto"}, {"suffix": "x"}, {"modalities": ["audio"]},
    {"use_beam_search": True}, {"audio": {}}, {"prompt_embeds": "x"}, {"add_special_tokens": True},
    {"prediction": {}}, {"web_search_options": {}}, {"chat_template": "x"},
]  # fmt: skip


@pytest.mark.parametrize("fields", REFUSED, ids=str)
def test_values_that_would_be_ignored_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError, match="not supported") as refused:
        chat(**fields)
    assert refused.value.param == next(iter(fields))


def test_outputs_are_all_returned() -> None:
    assert chat(n=3, best_of=3).n == 3
    with pytest.raises(InvalidRequestError, match="best_of must equal n"):
        chat(n=2, best_of=3)


def test_biases_are_by_token_id() -> None:
    assert chat(logit_bias={"7": -100, "12": 0.5}).biases == {7: -100.0, 12: 0.5}


@pytest.mark.parametrize("key", ["", "x", "-1", "1.0", "٣", "99999999999", " 1"])
def test_a_bias_needs_a_token_id(key: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        chat(logit_bias={"7": 1, key: 1})
    assert refused.value.param == "logit_bias"
    assert json.dumps(key) in refused.value.message


def test_forms_are_kept_as_they_were_written() -> None:
    schema = {"type": "object", "default": None, "properties": {"a": {"type": "string"}}}
    given = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    request = chat(response_format=given, structured_outputs={"json": schema}, regex="a+")
    assert request.formats == {
        "response_format": given,
        "structured_outputs": {"json": schema},
        "regex": "a+",
    }


def test_chat_logprobs_are_two_fields() -> None:
    assert chat().num_logprobs is None
    assert chat(logprobs=True).num_logprobs == 0
    assert chat(logprobs=True, top_logprobs=4).num_logprobs == 4
    for alone in (1, -1):
        with pytest.raises(InvalidRequestError, match="top_logprobs needs logprobs"):
            chat(top_logprobs=alone)


def test_completion_logprobs_are_one_number() -> None:
    def asked(**fields: Any) -> int | None:
        return parse(CompletionRequest, {"prompt": "x"} | fields).num_logprobs

    assert (asked(), asked(logprobs=False), asked(logprobs=0), asked(logprobs=5)) == (
        None, None, 0, 5,
    )  # fmt: skip


def test_of_several_forms_the_error_is_about_the_one_that_was_meant() -> None:
    with pytest.raises(InvalidRequestError, match=r"^stop: List should have at most"):
        parse(CompletionRequest, {"prompt": "x", "stop": ["a"] * 5000})


def test_a_number_without_a_fraction_is_an_integer() -> None:
    body = {"prompt": "x", "max_tokens": 7.0, "seed": -3.0, "logprobs": 0.0, "temperature": 1.0}
    found = parse(CompletionRequest, body)
    assert (found.max_tokens, found.seed, found.num_logprobs) == (7, -3, 0)
    assert type(found.temperature) is float
    for wrong in ({"max_tokens": 7.5}, {"max_tokens": 1e300}, {"echo": 1.0}):
        with pytest.raises(InvalidRequestError):
            parse(CompletionRequest, body | wrong)


@pytest.mark.parametrize("logprobs", [True, "x", -2, 2**70])
def test_a_wrong_number_is_told_in_plain_words(logprobs: Any) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        parse(CompletionRequest, {"prompt": "x", "logprobs": logprobs})
    assert refused.value.message.startswith("logprobs: Input should be")


def test_a_turn_is_opened_unless_the_last_message_goes_on() -> None:
    assert chat().opens_turn
    assert not chat(add_generation_prompt=False).opens_turn
    assert not chat(continue_final_message=True).opens_turn


def tool(name: str = "add", **fields: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name} | fields}


@pytest.mark.parametrize(
    ("choice", "mode"),
    [
        (None, "auto"),
        ("auto", "auto"),
        ("none", "none"),
        ("required", "required"),
        ({"type": "function", "function": {"name": "add"}}, "named"),
    ],
)
def test_tools_alone_mean_that_the_model_decides(choice: Any, mode: str) -> None:
    request = chat(tools=[tool()], tool_choice=choice)
    assert request.tool_mode == mode
    assert ("tools" in request.template_variables) == (mode != "none")
    assert chat().tool_mode == "none"


def test_templates_read_tools_with_a_schema_always() -> None:
    given = chat(tools=[tool(description="adds", parameters={"type": "object"}), tool("b")])
    first, second = given.template_variables["tools"]
    assert first == tool(description="adds", parameters={"type": "object"})
    assert second == tool("b", parameters={"type": "object", "properties": {}})


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels - 1):
        schema = {"a": schema}
    return schema


@pytest.mark.parametrize(
    "tools",
    [
        [],
        [{}],
        [tool("a b")],
        [tool("x" * 65)],
        [tool(), tool()],
        [tool(str(i)) for i in range(129)],
        [tool(parameters={"type": "x" * 70_000})],
        [tool(parameters=nested(33))],
        [{"type": "web_search"}],
    ],
    ids=range(9),
)
def test_tools_that_cannot_be_offered_are_refused(tools: Any) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        chat(tools=tools)
    assert refused.value.param == "tools"


def test_a_schema_of_many_levels_is_fine() -> None:
    chat(tools=[tool(parameters=nested(32))])


@pytest.mark.parametrize("kind", ["image_url", "input_audio", "file", "video_url", "x"])
def test_a_part_that_is_not_text_is_refused_in_words(kind: str) -> None:
    message = {"role": "user", "content": [{"type": kind, kind: {"url": "http://x"}}]}
    with pytest.raises(InvalidRequestError, match="text-only") as refused:
        parse(ChatCompletionRequest, {"messages": [message]})
    assert (refused.value.param, refused.value.code) == ("messages", "unsupported_content")


@pytest.mark.parametrize(
    "message",
    [
        {"role": "function", "content": "x", "name": "f"},
        {"role": "user", "content": "x", "tool_calls": [{"function": {"name": "f"}}]},
        {"role": "assistant", "content": "x", "tool_calls": [{}]},
        {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "assistant", "audio": {"id": "audio_1"}},
        {"role": "user", "content": [{"type": "text"}]},
        {"role": "user"},
    ],
    ids=range(7),
)
def test_messages_that_make_no_sense_are_refused(message: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        parse(ChatCompletionRequest, {"messages": [USER, message]})
    assert refused.value.param == "messages"


def test_a_refusal_is_what_the_assistant_said() -> None:
    said = chat(messages=[USER, {"role": "assistant", "content": None, "refusal": "I cannot."}])
    assert said.conversation()[1] == {"role": "assistant", "content": "I cannot."}


def test_messages_as_templates_read_them() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "refusal", "refusal": "b"}]
    request = parse(
        ChatCompletionRequest,
        {
            "messages": [
                {"role": "developer", "content": "brief"},
                {"role": "user", "content": parts, "name": "ann"},
                {"role": "assistant", "reasoning": "hm"},
                {"role": "tool", "content": "3", "tool_call_id": "id-1"},
            ]
        },
    )
    assert request.conversation() == [
        {"role": "system", "content": "brief"},
        {"role": "user", "content": "a\nb", "name": "ann"},
        {"role": "assistant", "content": "", "reasoning_content": "hm"},
        {"role": "tool", "content": "3", "tool_call_id": "id-1"},
    ]


@pytest.mark.parametrize(
    ("arguments", "read"),
    [
        ('{"a": 1}', {"a": 1}),
        ("", {}),
        ("{broken", "{broken"),
        ("[" * 100_000, "[" * 100_000),
        ("[" * 70 + "]" * 70, "[" * 70 + "]" * 70),
        ('{"a": NaN}', {"a": "NaN"}),
    ],
    ids=range(6),
)
def test_arguments_of_earlier_calls_are_values_where_they_are_json(
    arguments: str, read: Any
) -> None:
    call = {"id": "i", "type": "function", "function": {"name": "f", "arguments": arguments}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    request = parse(ChatCompletionRequest, {"messages": [USER, message]})
    shown = request.conversation()[1]["tool_calls"]
    function = {"name": "f", "arguments": read}
    assert shown == [{"id": "i", "type": "function", "function": function}]


def test_template_variables_come_from_two_fields() -> None:
    request = chat(chat_template_kwargs={"enable_thinking": False}, reasoning_effort="low")
    assert request.template_variables == {"enable_thinking": False, "reasoning_effort": "low"}


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [("a", ["a"]), ([1, 2], [[1, 2]]), (["a", "b"], ["a", "b"]), ([[1], [2, 3]], [[1], [2, 3]])],
)
def test_prompts_have_four_forms(prompt: Any, prompts: list[Any]) -> None:
    assert parse(CompletionRequest, {"prompt": prompt}).prompts() == prompts


def test_prompts_times_outputs_are_bounded() -> None:
    request = parse(CompletionRequest, {"prompt": ["a"] * 100, "n": 11})
    with pytest.raises(InvalidRequestError) as refused:
        request.prompts()
    assert refused.value.param == "n"


@pytest.mark.parametrize("prompt", [[], [[]], [[1], []], ["a"] * 129])
def test_prompts_without_tokens_or_too_many_are_refused(prompt: Any) -> None:
    with pytest.raises(InvalidRequestError):
        parse(CompletionRequest, {"prompt": prompt}).prompts()


def test_tokenize_takes_exactly_one_input() -> None:
    for body in ({}, {"prompt": "a", "messages": [USER]}):
        with pytest.raises(InvalidRequestError, match="either prompt or messages"):
            parse(TokenizeRequest, body)


@pytest.mark.parametrize("name", ["stream_options", "response_format", "logit_bias", "tool_choice"])
def test_errors_name_no_types_of_ours(name: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        chat(**{name: 5}, stream=True, tools=[tool()])
    assert refused.value.param == name
    assert not any(word in refused.value.message for word in ("instance", "dict", "Named"))


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
