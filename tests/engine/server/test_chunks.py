import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yaie.server.answers.chunks import ChatChunks, TextChunks, encode_json, encode_text, usage_field
from yaie.server.answers.output import Delta
from yaie.text.parts import ReasoningPart, TextPart, ToolCallPart
from yaie_api.http.openai import Usage

CHAT = ChatChunks("id-1", 7, 'a "model"')
TEXT = TextChunks("id-2", 7, "m", index=3)


def payload(event: bytes) -> Any:
    assert event.startswith(b"data: ")
    assert event.endswith(b"\n\n")
    assert event.count(b"\n") == 2
    return json.loads(event[6:])


def payloads(events: bytes) -> list[Any]:
    return [payload(event + b"\n\n") for event in events.split(b"\n\n")[:-1]]


def test_a_chat_chunk_is_what_clients_check() -> None:
    head = {
        "id": "id-1",
        "object": "chat.completion.chunk",
        "created": 7,
        "model": 'a "model"',
    }
    choice = {"index": 0, "logprobs": None, "finish_reason": None}
    assert payload(CHAT.role()) == head | {
        "choices": [choice | {"delta": {"role": "assistant", "content": ""}}]
    }
    text = {"delta": {"content": "x"}, "token_ids": None}
    assert payload(CHAT.delta(Delta([TextPart("x")]))) == head | {"choices": [choice | text]}
    last = payload(CHAT.delta(Delta([], "stop", "END")))["choices"][0]
    assert (last["delta"], last["finish_reason"], last["stop_reason"]) == ({}, "stop", "END")


def test_a_text_chunk_has_its_index() -> None:
    assert payload(TEXT.delta(Delta([TextPart("x")], "length")))["choices"] == [
        {"index": 3, "text": "x", "logprobs": None, "finish_reason": "length", "stop_reason": None,
         "prompt_token_ids": None, "token_ids": None}
    ]  # fmt: skip


def test_a_chunk_of_text_alone_is_the_same_on_the_short_way() -> None:
    for encoder in (CHAT, TEXT):
        short, long = encoder.text("x", b""), encoder.delta(Delta([TextPart("x")]))
        assert short == long


def test_reasoning_has_both_of_its_names() -> None:
    choice = payload(CHAT.delta(Delta([ReasoningPart("why")])))["choices"][0]
    assert choice["delta"] == {"reasoning": "why", "reasoning_content": "why"}


def test_a_tool_call_has_its_index_always_and_its_name_once() -> None:
    first = ToolCallPart(1, "", call_id="call-a", name="add")
    chunks = payloads(CHAT.delta(Delta([first, ToolCallPart(1, '{"a"')])))
    deltas = [chunk["choices"][0]["delta"]["tool_calls"] for chunk in chunks]
    function = {"name": "add", "arguments": ""}
    assert deltas == [
        [{"index": 1, "id": "call-a", "type": "function", "function": function}],
        [{"index": 1, "function": {"arguments": '{"a"'}}],
    ]


def test_several_parts_are_several_chunks_and_only_the_last_ends() -> None:
    delta = Delta([ReasoningPart("why"), TextPart("so")], "stop", 5)
    chunks = payloads(CHAT.delta(delta, logprobs=b'{"content":[]}', ids=b',"token_ids":[1]'))
    choices = [chunk["choices"][0] for chunk in chunks]
    assert [choice["finish_reason"] for choice in choices] == [None, "stop"]
    assert [choice["logprobs"] for choice in choices] == [None, {"content": []}]
    assert (choices[1]["token_ids"], choices[1]["stop_reason"]) == ([1], 5)
    assert choices[0]["token_ids"] is None


def test_usage_has_no_choices() -> None:
    usage = Usage(prompt_tokens=5, completion_tokens=2, cached_tokens=3, reasoning_tokens=1)
    assert payload(CHAT.usage(usage))["choices"] == []
    assert payload(CHAT.usage(usage))["usage"] == {
        "prompt_tokens": 5,
        "completion_tokens": 2,
        "total_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 3},
        "completion_tokens_details": {"reasoning_tokens": 1},
    }
    text = Delta([TextPart("x")])
    assert payload(CHAT.delta(text, top=usage_field(None)))["usage"] is None
    assert payload(CHAT.delta(text, top=usage_field(usage)))["usage"]["total_tokens"] == 7


@given(st.text())
def test_any_text_stays_on_one_line_and_comes_back(text: str) -> None:
    for encoded in (encode_text(text), encode_json(text)):
        assert json.loads(encoded) == text
        assert len(encoded.decode().splitlines()) == 1


def test_text_with_half_a_surrogate_is_refused_by_the_encoder() -> None:
    with pytest.raises(UnicodeEncodeError):
        encode_text("\ud800")
