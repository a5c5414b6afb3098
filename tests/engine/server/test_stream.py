import asyncio
from typing import Any

import pytest

from yaie.server.answers.response_body import ResponseBody
from yaie.server.answers.stream import (
    DONE,
    PING,
    EventStream,
    Writer,
    error_event,
    until_disconnect,
)
from yaie_api.errors import OverloadedError


async def send_all(write: Writer, **options: Any) -> tuple[int, bytes]:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        await asyncio.sleep(60)

    await EventStream(write, **options)({"type": "http"}, receive, send)
    assert [message.get("more_body") for message in sent[1:]] == [True] * (len(sent) - 2) + [False]
    return sent[0]["status"], b"".join(message["body"] for message in sent[1:])


async def test_every_stream_ends_with_done() -> None:
    async def events(out: ResponseBody) -> None:
        out.write(b"data: 1\n\n")

    assert await send_all(events) == (200, b"data: 1\n\n" + DONE)


async def test_an_error_in_a_stream_is_an_event_before_done() -> None:
    async def events(out: ResponseBody) -> None:
        out.write(b"data: 1\n\n")
        raise OverloadedError("full")

    _, body = await send_all(events)
    assert body == b"data: 1\n\n" + error_event(OverloadedError("full")) + DONE


async def test_a_defect_in_a_stream_is_told_without_details() -> None:
    async def events(out: ResponseBody) -> None:
        out.write(b"data: 1\n\n")
        raise ValueError("/secret/path")

    _, body = await send_all(events)
    assert b"/secret" not in body
    assert b'"code":"engine_error"' in body
    assert body.endswith(DONE)


async def test_comments_are_sent_while_nothing_comes_and_not_after() -> None:
    async def events(out: ResponseBody) -> None:
        await asyncio.sleep(0.1)
        out.write(b"data: 1\n\n")
        out.write(b"data: 2\n\n")

    _, body = await send_all(events, ping_s=0.03)
    before, _, after = body.partition(b"data: 1\n\n")
    assert before.count(PING) >= 2
    assert before.replace(PING, b"") == b""
    assert after == b"data: 2\n\n" + DONE


async def test_a_protocol_may_have_no_last_event() -> None:
    async def events(out: ResponseBody) -> None:
        out.write(b"data: 1\n\n")

    assert await send_all(events, done=b"") == (200, b"data: 1\n\n")


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
