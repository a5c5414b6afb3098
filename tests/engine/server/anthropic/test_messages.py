"""Anthropic's messages over the scripted engine, which repeats the prompt."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from engine.server.running import Answer, Server, serving
from yaie.server.answers.items import Items
from yaie.server.anthropic.input import to_chat
from yaie.server.anthropic.output import block_for
from yaie.text.parts import ReasoningPart, TextPart, ToolCallPart
from yaie_api.http.anthropic import MessagesRequest
from yaie_api.http.openai import ChatCompletionRequest
from yaie_api.http.wire import parse

USER = [{"role": "user", "content": "hello there"}]
TOOL = {"name": "f", "description": "does f", "input_schema": {"type": "object"}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("messages"), "--api-key", "secret") as running:
        running.wait_ready()
        yield running


def ask(server: Server, path: str = "/v1/messages", key: str = "secret", **body: Any) -> Answer:
    fields = {"messages": USER, "max_tokens": 7} | body
    return server.call(path, fields, headers={"x-api-key": key})


def events_of(answer: Answer) -> list[dict[str, Any]]:
    found = []
    for block in answer.body.decode().removesuffix("\n\n").split("\n\n"):
        name, data = block.split("\n")
        found.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}"
    return found


def test_a_message_has_blocks_and_counts_cached_tokens_apart(server: Server) -> None:
    message = ask(server).json
    assert (message["type"], message["role"], message["model"]) == ("message", "assistant", "stub")
    assert message["content"] == [{"type": "text", "text": "user\nhell"}]
    assert (message["stop_reason"], message["stop_sequence"]) == ("max_tokens", None)
    usage = message["usage"]
    assert (usage["output_tokens"], usage["cache_read_input_tokens"]) == (7, 5)
    counted = ask(server, "/v1/messages/count_tokens").json["input_tokens"]
    assert usage["input_tokens"] + 5 == counted


def test_a_stop_sequence_is_named(server: Server) -> None:
    message = ask(server, max_tokens=100, stop_sequences=["there"]).json
    assert (message["stop_reason"], message["stop_sequence"]) == ("stop_sequence", "there")


def test_the_end_of_the_model_s_turn_is_the_end(server: Server) -> None:
    words = [{"role": "user", "content": "stop at once"}]
    assert ask(server, messages=words, max_tokens=50).json["stop_reason"] == "end_turn"


def test_a_stream_has_the_exact_sequence_of_events(server: Server) -> None:
    words = [{"role": "user", "content": "burst of words"}]
    answer = ask(server, messages=words, stream=True)
    events = events_of(answer)
    assert [event["type"] for event in events] == [
        "message_start",
        "ping",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    start, end = events[0]["message"], events[-2]
    assert start["content"] == []
    assert start["stop_reason"] is None
    assert end["delta"] == {"stop_reason": "max_tokens", "stop_sequence": None}
    assert end["usage"]["output_tokens"] == 7
    assert events[3]["delta"]["text"] == ask(server, messages=words).json["content"][0]["text"]


@pytest.mark.parametrize(
    ("word", "kind"), [("fail", "api_error"), ("exclude", "invalid_request_error")]
)
def test_an_error_in_the_middle_of_a_stream_is_an_error_event(
    server: Server, word: str, kind: str
) -> None:
    words = [{"role": "user", "content": f"{word} now"}]
    last = events_of(ask(server, messages=words, stream=True))[-1]
    assert last["error"]["type"] == kind


def test_errors_have_anthropic_s_envelope(server: Server) -> None:
    cases: list[tuple[int, str, Answer]] = [
        (401, "authentication_error", ask(server, key="wrong")),
        (404, "not_found_error", ask(server, model="nope")),
        (404, "not_found_error", ask(server, "/v1/messages/nope")),
        (400, "invalid_request_error", ask(server, max_tokens=0)),
        (
            405,
            "invalid_request_error",
            server.call("/v1/messages", headers={"x-api-key": "secret"}),
        ),
        (413, "request_too_large", ask(server, system="x" * (5 << 20))),
        (
            415,
            "invalid_request_error",
            server.call(
                "/v1/messages",
                b"{}",
                headers={"content-encoding": "gzip", "x-api-key": "secret"},
            ),
        ),
        (429, "rate_limit_error", ask(server, messages=[{"role": "user", "content": "refuse"}])),
    ]
    for status, kind, answer in cases:
        assert answer.status == status
        assert answer.json["type"] == "error"
        assert answer.json["error"]["type"] == kind
        assert answer.json["request_id"] == answer.headers["x-request-id"]


@pytest.mark.parametrize(
    "fields",
    [
        {"messages": []},
        {"messages": [{"role": "user", "content": []}]},
        {"messages": [{"role": "tool", "content": "x"}]},
        {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]},
        {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
        {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "name": 3}]}]},
        {"tools": [{"type": "custom"}]},
        {"tools": [{"type": "web_search_20250305", "name": "web_search"}],
         "tool_choice": {"type": "tool", "name": "web_search"}},
        {"tools": [{"type": "web_search_20250305"}], "tool_choice": {"type": "any"}},
        {"context_management": {"edits": [{"type": "compact_20260112"}]}},
        {"container": "c"},
        {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "g"}},
        {"tool_choice": {"type": "any"}, "tools": []},
        {"tool_choice": {"type": "tool", "name": "f"}},
        {"temperature": 3.0},
        {"mcp_servers": [{"url": "http://x"}]},
        {"output_config": {"format": {"type": "json_schema"}}},
        {"output_format": {"type": "json_schema", "schema": {}}},
        {"guided_json": {}},
        {"max_tokens": None},
    ],
)  # fmt: skip
def test_bad_requests_are_refused(server: Server, fields: dict[str, Any]) -> None:
    answer = ask(server, **fields)
    assert answer.status == 400, answer.body


@pytest.mark.parametrize("choice", ["auto", "none"])
def test_without_tools_a_choice_that_demands_none_is_fine(server: Server, choice: str) -> None:
    assert ask(server, tool_choice={"type": choice}).status == 200


def test_models_are_listed_in_anthropic_s_form_for_its_clients(server: Server) -> None:
    theirs = {"x-api-key": "secret", "anthropic-version": "2023-06-01"}
    listed = server.call("/v1/models?limit=1", headers=theirs)
    (model,) = listed.json["data"]
    assert (model["type"], model["display_name"], model["max_input_tokens"]) == (
        "model",
        "stub",
        256,
    )
    assert (listed.json["first_id"], listed.json["has_more"]) == ("stub", True)
    assert listed.headers["request-id"] == listed.headers["x-request-id"]
    assert server.call("/v1/models/stub", headers=theirs).json == model
    assert server.call("/v1/models?limit=0", headers=theirs).status == 400
    openai = server.call("/v1/models", headers={"x-api-key": "secret"})
    assert openai.json["object"] == "list"
    assert "request-id" not in openai.headers


# -- translation ------------------------------------------------------------------------------


def chat_of(**fields: Any) -> ChatCompletionRequest:
    body = {"messages": USER, "max_tokens": 5} | fields
    return to_chat(parse(MessagesRequest, body))


def test_a_conversation_with_tools_becomes_turns() -> None:
    chat = chat_of(
        system=[{"type": "text", "text": "Be brief."}],
        messages=[
            {"role": "user", "content": "hi"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": ""},
                    {"type": "text", "text": "Let me look."},
                    {"type": "tool_use", "id": "t1", "name": "f", "input": {"x": "ä"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "t1", "content": "no", "is_error": True},
                    {"type": "text", "text": "Well?"},
                ],
            },
        ],
    )
    found = chat.conversation()
    assert [turn["role"] for turn in found] == ["system", "user", "assistant", "tool", "user"]
    assert found[2]["content"] == "Let me look."
    assert found[2]["reasoning_content"] == "hm"
    assert found[2]["tool_calls"][0]["function"]["arguments"] == {"x": "ä"}
    assert (found[3]["tool_call_id"], found[3]["content"]) == ("t1", "Error: no")
    assert found[4]["content"] == "Well?"


@pytest.mark.parametrize(
    ("choice", "mode", "parallel"),
    [
        (None, "auto", True),
        ({"type": "auto", "disable_parallel_tool_use": True}, "auto", False),
        ({"type": "any"}, "required", True),
        ({"type": "none"}, "none", True),
        ({"type": "tool", "name": "f"}, "named", True),
    ],
)
def test_choices_among_tools(choice: Any, mode: str, parallel: bool) -> None:
    chat = chat_of(tools=[TOOL], tool_choice=choice)
    assert (chat.tool_mode, chat.parallel_tool_calls) == (mode, parallel)


def test_an_answer_goes_on_from_a_last_turn_of_the_model() -> None:
    begun = chat_of(messages=[*USER, {"role": "assistant", "content": "Sure, "}])
    assert (begun.continue_final_message, begun.opens_turn) == (True, False)
    called = [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]
    for last in ("", called):
        whole = chat_of(messages=[*USER, {"role": "assistant", "content": last}])
        assert (whole.continue_final_message, whole.opens_turn) == (False, True)


def test_thinking_reaches_the_template() -> None:
    assert chat_of(thinking={"type": "disabled"}).template_variables["enable_thinking"] is False
    enabled = chat_of(thinking={"type": "enabled", "budget_tokens": 1024})
    assert enabled.template_variables["enable_thinking"] is True


@pytest.mark.parametrize(
    ("fields", "begins"),
    [
        ({"messages": [{"role": "wizard", "content": "x"}]}, "messages.0.role: "),
        ({"messages": [*USER, {"role": "user", "content": 5}]}, "messages.1.content: "),
        (
            {"messages": [*USER, {"role": "user", "content": [{"type": "tool_result",
             "tool_use_id": 5}]}]},
            "messages.1.content.0.tool_use_id: ",
        ),
        (
            {"system": "s", "messages": [*USER, {"role": "assistant", "content": [
                {"type": "text", "text": "a"}, {"type": "tool_use", "id": "t", "name": 3}]}]},
            "messages.1.content.1.name: ",
        ),
        ({"tools": [{"name": "f", "input_schema": 3}]}, "tools.0.input_schema: "),
        ({"tools": [{"type": "bash_20250124", "name": "bash"}, {"name": "f", "input_schema": {
          "type": "object"}}, {"input_schema": {}}]}, "tools.2.name: "),
        ({"stop_sequences": ["x", ""]}, "stop_sequences"),
        ({"stop_sequences": ["x"] * 17}, "stop_sequences"),
    ],
)  # fmt: skip
def test_errors_begin_with_the_field_that_was_sent(
    server: Server, fields: dict[str, Any], begins: str
) -> None:
    answer = ask(server, **fields)
    assert answer.status == 400
    assert answer.json["error"]["message"].startswith(begins)


def test_parts_become_blocks() -> None:
    blocks = Items(block_for)
    parts = [ReasoningPart("hm"), TextPart("I look"), ToolCallPart(0, "", "c1", "f")]
    events = [event for part in parts for event in blocks.push([part])]
    events += [*blocks.push([ToolCallPart(0, '{"x":')]), *blocks.push([ToolCallPart(0, "1}")])]
    events += blocks.finish("completed")
    assert blocks.output == [
        {"type": "thinking", "thinking": "hm", "signature": ""},
        {"type": "text", "text": "I look"},
        {"type": "tool_use", "id": "c1", "name": "f", "input": {"x": 1}},
    ]
    deltas = [event["delta"]["type"] for event in events if event["type"] == "content_block_delta"]
    assert deltas == [
        "thinking_delta", "signature_delta", "text_delta", "input_json_delta", "input_json_delta",
    ]  # fmt: skip
    assert [e["index"] for e in events if e["type"] == "content_block_stop"] == [0, 1, 2]


def test_a_call_that_was_cut_off_has_no_input() -> None:
    blocks = Items(block_for)
    list(blocks.push([ToolCallPart(0, '{"x": [1,', "c1", "f")]))
    list(blocks.finish("incomplete"))
    assert blocks.output[0]["input"] == {}
