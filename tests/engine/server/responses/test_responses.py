"""The responses API over the scripted engine, which repeats the prompt: what the client may rely on
in whole answers, streams and stored conversations.
"""

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from engine.server.running import Answer, Server, serving
from engine.text.vocabularies import byte_level
from yaie.server.answers.items import Items
from yaie.server.answers.response_store import ResponseStore, Stored
from yaie.server.openai.logprobs import TokenForms
from yaie.server.responses.input import turns
from yaie.server.responses.logprobs import TextLogprobs
from yaie.server.responses.output import ItemMaker
from yaie.text.parts import ReasoningPart, TextPart, ToolCallPart
from yaie.text.prompt.tokenizer import Tokenizer
from yaie_api.errors import InvalidRequestError


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("responses")) as running:
        running.wait_ready()
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0) as made:
        yield made


def respond(server: Server, **body: Any) -> Answer:
    return server.call("/v1/responses", {"input": "hello there"} | body)


def events_of(answer: Answer) -> list[dict[str, Any]]:
    """The events of a stream; each names its type twice and has the next number."""
    found = []
    for block in answer.body.decode().removesuffix("\n\n").split("\n\n"):
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        found.append(event)
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    return found


def test_the_openai_client_gets_a_response(client: openai.OpenAI) -> None:
    response = client.responses.create(model="stub", input="hello there", max_output_tokens=7)
    assert response.output_text == "user\nhell"
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.usage is not None
    assert response.usage.output_tokens == 7
    assert response.usage.input_tokens_details.cached_tokens == 5


def test_the_openai_client_follows_a_stream(client: openai.OpenAI) -> None:
    with client.responses.stream(model="stub", input="slow words", max_output_tokens=6) as stream:
        deltas = [e.delta for e in stream if e.type == "response.output_text.delta"]
    assert len(deltas) > 2
    whole = client.responses.create(model="stub", input="slow words", max_output_tokens=6)
    assert "".join(deltas) == whole.output_text


def test_a_stream_has_the_exact_sequence_of_events(server: Server) -> None:
    answer = respond(server, input="burst of words", stream=True, max_output_tokens=5)
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = events_of(answer)
    assert [event["type"] for event in events] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.incomplete",
    ]
    opened, part, done = events[2], events[3], events[-2]
    assert opened["item"]["content"] == []
    assert part["item_id"] == opened["item"]["id"] == done["item"]["id"]
    final = events[-1]["response"]
    assert final["output"] == [done["item"]]
    assert final["id"] == events[0]["response"]["id"]
    assert b"[DONE]" not in answer.body


def test_a_conversation_goes_on_from_a_stored_response(client: openai.OpenAI) -> None:
    first = client.responses.create(model="stub", input="hello one", max_output_tokens=4)
    second = client.responses.create(
        model="stub", input="two", previous_response_id=first.id, max_output_tokens=4
    )
    alone = client.responses.create(model="stub", input="two", max_output_tokens=4)
    assert second.usage is not None
    assert alone.usage is not None
    assert second.usage.input_tokens > alone.usage.input_tokens + 4
    assert second.previous_response_id == first.id
    assert client.responses.retrieve(first.id).output_text == first.output_text
    items = client.responses.input_items.list(second.id).data
    assert [item.type for item in items] == ["message"]


def test_a_deleted_or_unstored_response_is_gone(client: openai.OpenAI) -> None:
    kept = client.responses.create(model="stub", input="hello", max_output_tokens=1)
    other = client.responses.create(model="stub", input="hello", max_output_tokens=1, store=False)
    client.responses.delete(kept.id)
    for response_id in (kept.id, other.id):
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(response_id)
    with pytest.raises(openai.BadRequestError, match="previous response"):
        client.responses.create(model="stub", input="x", previous_response_id=kept.id)


def test_only_what_runs_in_the_background_can_be_cancelled(client: openai.OpenAI) -> None:
    kept = client.responses.create(model="stub", input="hello", max_output_tokens=1)
    with pytest.raises(openai.BadRequestError, match="background"):
        client.responses.cancel(kept.id)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": []}, "input"),
        ({"input": [{"type": "item_reference", "id": "a"}]}, "input"),
        ({"input": [{"role": "user"}]}, "input"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input"),
        ({"tools": [{"name": "f"}]}, "tools"),
        ({"tools": [{"type": "namespace", "name": "n"}]}, "tools"),
        ({"tools": [{"type": "namespace", "name": "n", "tools": ["f"]}]}, "tools"),
        ({"tools": [{"type": "custom", "name": "f", "format": {"type": "wild"}}]}, "tools"),
        ({"tools": [{"type": "web_search"}], "tool_choice": {"type": "web_search"}}, "tool_choice"),
        ({"tools": [{"type": "web_search"}], "tool_choice": "required"}, "tool_choice"),
        ({"context_management": [{"type": "compaction"}]}, "context_management"),
        ({"input": [{"type": "compaction", "encrypted_content": "x"}]}, "input"),
        ({"input": [{"type": ["message"]}]}, "input"),
        ({"input": [{"type": [], "role": "user", "content": "a"}]}, "input"),
        ({"tools": [{"type": "function", "name": "a b"}]}, "tools"),
        ({"background": True}, "background"),
        ({"conversation": "c"}, "conversation"),
        ({"truncation": "sometimes"}, "truncation"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"top_logprobs": 2000, "include": ["message.output_text.logprobs"]}, "top_logprobs"),
        ({"min_tokens": 9, "max_output_tokens": 3}, "min_tokens"),
        ({"repetition_penalty": -1.0}, "repetition_penalty"),
        ({"stop": [""]}, "stop"),
        ({"include": 1}, "include"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": "sometimes"}, "tool_choice"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"max_output_tokens": 10**6}, "input"),
        ({"text": {"format": {"type": "json_schema", "name": "a"}}}, "text.format"),
        ({"previous_response_id": "resp_none"}, "previous_response_id"),
    ],
)
def test_bad_requests_name_the_field_of_this_api(
    server: Server, fields: dict[str, Any], param: str
) -> None:
    answer = respond(server, **fields)
    assert answer.status == 400, answer.body
    assert answer.error["param"] == param


def test_a_stored_response_is_not_streamed_again(client: openai.OpenAI) -> None:
    """A client that waits for events would take the whole answer for a stream of none."""
    kept = client.responses.create(model="stub", input="hello", max_output_tokens=1)
    with pytest.raises(openai.BadRequestError, match="leave stream out"):
        client.responses.retrieve(kept.id, stream=True)


OUTPUT = {"type": "function_call_output", "call_id": "c", "output": "1"}


@pytest.mark.parametrize(
    ("fields", "begins"),
    [
        ({"input": [{"role": "wizard", "content": "x"}]}, "input.0.role: "),
        ({"input": [{"role": "user", "content": "a"}, {"role": "user", "content": 5}]},
         "input.1.content: "),
        ({"instructions": "Be brief.", "input": [OUTPUT, {"role": "x", "content": "a"}]},
         "input.1.role: "),
        ({"instructions": "Be brief.",
          "input": [{"role": "system", "content": "a"}, {"role": "x"}]}, "input.1.role: "),
        ({"input": [{"role": "user", "content": [{"type": 7}]}]}, "input.0.content.0.type: "),
        ({"input": [OUTPUT | {"output": 5}]}, "input.0.output: "),
        ({"input": [OUTPUT, OUTPUT | {"call_id": 5}]}, "input.1.call_id: "),
        ({"input": [{"role": "assistant", "content": "a"},
                    {"type": "function_call", "call_id": "c", "name": "f"},
                    {"type": "function_call", "call_id": "d", "name": 5}]}, "input.2.name: "),
        ({"tools": [{"type": "function", "name": 5}]}, "tools.0.name: "),
        ({"text": {"format": {"type": "json_schema", "name": "a"}}}, "text.format"),
        ({"tools": [{"type": "function", "name": "f"}], "tool_choice": {"type": "function"}},
         "tool_choice.name: "),
    ],
)  # fmt: skip
def test_errors_begin_with_the_field_that_was_sent(
    server: Server, fields: dict[str, Any], begins: str
) -> None:
    answer = respond(server, **fields)
    assert answer.status == 400
    assert answer.error["message"].startswith(begins)


def test_items_of_the_stored_conversation_are_not_counted(server: Server) -> None:
    stored = respond(server, max_output_tokens=1).json["id"]
    wrong = [{"role": "user", "content": "a"}, {"role": "wizard", "content": "b"}]
    answer = respond(server, input=wrong, previous_response_id=stored)
    assert answer.error["message"].startswith("input.1.role: ")


@pytest.mark.parametrize(
    ("word", "code"), [("fail", "server_error"), ("exclude", "invalid_prompt")]
)
def test_an_error_in_the_middle_ends_the_stream_as_failed(
    server: Server, word: str, code: str
) -> None:
    events = events_of(respond(server, input=f"{word} now", stream=True))
    assert events[-1]["type"] == "response.failed"
    assert events[-1]["response"]["status"] == "failed"
    assert events[-1]["response"]["error"]["code"] == code
    again = respond(server, previous_response_id=events[-1]["response"]["id"])
    assert again.error["code"] == "previous_response_not_found"


def item_maker() -> ItemMaker:
    """Makes items of a request without tools and without log-probabilities."""
    return ItemMaker({}, TextLogprobs(TokenForms(Tokenizer(byte_level(), None))), encrypted=False)


# -- items and turns ------------------------------------------------------------------------


def test_items_of_one_turn_are_one_message() -> None:
    items = [
        {"role": "user", "content": "hi"},
        {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"type": "message", "role": "assistant", "content": "Let me look."},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "function_call", "call_id": "c2", "name": "g", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "1"},
        {"type": "function_call_output", "call_id": "c2", "output": "2"},
        {"type": "message", "role": "assistant", "content": "Done."},
        {"type": "message", "role": "assistant", "content": "Really."},
    ]
    found, _ = turns(items)
    assert [turn["role"] for turn in found] == [
        "user", "assistant", "tool", "tool", "assistant", "assistant",
    ]  # fmt: skip
    assert found[1]["reasoning_content"] == "hm"
    assert found[1]["content"] == "Let me look."
    assert [call["id"] for call in found[1]["tool_calls"]] == ["c1", "c2"]
    assert [turn.get("tool_call_id") for turn in found[2:4]] == ["c1", "c2"]


def test_reasoning_begins_a_turn_of_its_own() -> None:
    thought = {"type": "reasoning", "summary": [{"text": "b"}]}
    found, _ = turns([{"role": "assistant", "content": "a"}, thought])
    assert [turn["content"] for turn in found] == ["a", ""]


def test_unknown_items_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="computer_call"):
        turns([{"type": "computer_call"}])


def test_parts_of_another_kind_close_an_item_and_open_the_next() -> None:
    items = Items(item_maker())
    parts = [
        ReasoningPart("hm"),
        TextPart("I "),
        TextPart("look"),
        ToolCallPart(0, "", "c1", "f"),
        ToolCallPart(0, '{"x":1}'),
        ToolCallPart(1, "{}", "c2", "g"),
    ]
    events = [event for part in parts for event in items.push([part])]
    events += items.finish("completed")
    assert [one["type"] for one in items.output] == [
        "reasoning", "message", "function_call", "function_call",
    ]  # fmt: skip
    assert [one["output_index"] for one in events if one["type"].endswith("item.done")] == [
        0, 1, 2, 3,
    ]  # fmt: skip
    assert items.output[1]["content"][0]["text"] == "I look"
    assert items.output[2]["arguments"] == '{"x":1}'
    assert {one["status"] for one in items.output} == {"completed"}


def test_an_answer_without_anything_has_an_empty_message() -> None:
    items = Items(item_maker())
    assert len(list(items.finish("completed"))) == 5
    assert items.output[0]["content"][0]["text"] == ""


def test_the_store_forgets_the_oldest_and_keeps_tenants_apart() -> None:
    store = ResponseStore(max_responses=2)
    for name in "abc":
        store.put("one", Stored({"id": name}, [], []))
    assert len(store) == 2
    assert store.get("one", "a") is None
    assert store.get("one", "c") is not None
    assert store.get("two", "c") is None
    assert store.delete("one", "c")
    assert not store.delete("one", "c")
    small = ResponseStore(max_bytes=1000)
    for name in "ab":
        small.put("", Stored({"id": name}, [], [{"text": "x" * 300}]))
    assert len(small) == 1
