import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yaie.server.stream import (
    DONE,
    ChunkEncoder,
    EventStream,
    encode_text,
    error_event,
    until_disconnect,
    usage_field,
)
from yaie_api.errors import OverloadedError
from yaie_api.openai import Usage

CHAT = ChunkEncoder("chat.completion.chunk", "id-1", 7, 'a "model"')
TEXT = ChunkEncoder("text_completion", "id-2", 7, "m", index=3)


def payload(event: bytes) -> Any:
    assert event.startswith(b"data: ")
    assert event.endswith(b"\n\n")
    assert event.count(b"\n") == 2
    return json.loads(event[6:])


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
    assert payload(CHAT.text("x")) == head | {"choices": [choice | {"delta": {"content": "x"}}]}
    last = payload(CHAT.text("", "stop", stop_reason="END"))["choices"][0]
    assert (last["finish_reason"], last["stop_reason"]) == ("stop", "END")


def test_a_text_chunk_has_its_index() -> None:
    assert payload(TEXT.text("x", "length"))["choices"] == [
        {"index": 3, "text": "x", "logprobs": None, "finish_reason": "length"}
    ]


def test_usage_has_no_choices() -> None:
    usage = Usage(prompt_tokens=5, completion_tokens=2, cached_tokens=3)
    assert payload(CHAT.usage(usage))["choices"] == []
    assert payload(CHAT.usage(usage))["usage"] == {
        "prompt_tokens": 5,
        "completion_tokens": 2,
        "total_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 3},
    }
    assert payload(CHAT.text("x", usage=usage_field(None)))["usage"] is None
    assert payload(CHAT.text("x", usage=usage_field(usage)))["usage"]["total_tokens"] == 7


@given(st.text())
def test_any_text_stays_on_one_line_and_comes_back(text: str) -> None:
    encoded = encode_text(text)
    assert json.loads(encoded) == text
    assert len(encoded.decode().splitlines()) == 1


def test_text_with_half_a_surrogate_is_refused_by_the_encoder() -> None:
    with pytest.raises(UnicodeEncodeError):
        encode_text("\ud800")


async def send_all(chunks: AsyncGenerator[bytes]) -> tuple[int, bytes]:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        await asyncio.sleep(60)

    await EventStream(chunks)({"type": "http"}, receive, send)
    assert [message.get("more_body") for message in sent[1:]] == [True] * (len(sent) - 2) + [False]
    return sent[0]["status"], b"".join(message["body"] for message in sent[1:])


async def test_every_stream_ends_with_done() -> None:
    async def chunks() -> AsyncGenerator[bytes]:
        yield b"data: 1\n\n"

    assert await send_all(chunks()) == (200, b"data: 1\n\n" + DONE)


async def test_an_error_in_a_stream_is_an_event_before_done() -> None:
    async def chunks() -> AsyncGenerator[bytes]:
        yield b"data: 1\n\n"
        raise OverloadedError("full")

    _, body = await send_all(chunks())
    assert body == b"data: 1\n\n" + error_event(OverloadedError("full")) + DONE


async def test_a_defect_in_a_stream_is_told_without_details() -> None:
    async def chunks() -> AsyncGenerator[bytes]:
        yield b"data: 1\n\n"
        raise ValueError("/secret/path")

    _, body = await send_all(chunks())
    assert b"/secret" not in body
    assert b'"code":"engine_error"' in body
    assert body.endswith(DONE)


async def test_work_is_cancelled_when_the_client_leaves() -> None:
    cancelled = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            cancelled.set()

    async def receive() -> Any:
        return {"type": "http.disconnect"}

    assert await until_disconnect(receive, work()) is None
    assert cancelled.is_set()


async def test_work_that_ends_first_gives_its_result_or_error() -> None:
    async def receive() -> Any:
        await asyncio.sleep(60)

    async def fail() -> None:
        raise OverloadedError("full")

    assert await until_disconnect(receive, asyncio.sleep(0, "done")) == "done"
    with pytest.raises(OverloadedError):
        await until_disconnect(receive, fail())
