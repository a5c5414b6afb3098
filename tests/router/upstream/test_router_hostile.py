"""What comes over a socket is not always HTTP: broken framing from clients and from engines ends in
an answer that says so, soon, and the next request is served.
"""

import asyncio
import json

import pytest

from router.conftest import Stack
from router.fakes import DONE, FakeEngine, RawEngine, event
from router.upstream.test_router_proxy import chat_bytes, events_of

BODY = b'{"model":"demo","messages":[{"role":"user","content":"hi"}]}'
CHUNKED = (
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
)
EVENTS = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
JSON = EVENTS.replace(b"text/event-stream", b"application/json")
GENEROUS_S = 20.0
"""Far below the router's own limits (30 s for a body, 600 s of silence): they are not needed."""


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


async def exchange(stack: Stack, *pieces: bytes) -> bytes:
    """Send pieces one after the other, and read until the router closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", stack.config.port)
    for piece in pieces:
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(0.05)
    answer = await asyncio.wait_for(reader.read(), GENEROUS_S)
    writer.close()
    return answer


async def is_served(stack: Stack) -> bool:
    async with stack.chat() as response:
        return response.status == 200 and (await response.read()).endswith(DONE)


@pytest.mark.parametrize(
    "broken",
    [b"zz\r\nabc\r\n", b"-3\r\nabc\r\n", b"3\r\nabcXX0\r\n\r\n", b"f" * 40 + b"\r\nabc\r\n"],
    ids=["no number", "negative", "longer than it says", "a number too large"],
)
@pytest.mark.parametrize("later", [False, True], ids=["with the head", "after the head"])
async def test_a_broken_body_is_refused_at_once(stack: Stack, broken: bytes, later: bool) -> None:
    engine = FakeEngine("pod-a")
    await stack.serve("demo", engine)
    pieces = (CHUNKED + chunk(b'{"model'), broken) if later else (CHUNKED + broken,)
    answer = await exchange(stack, *pieces)
    assert answer.split()[1] == b"400"
    assert b"invalid_request_error" in answer
    assert not engine.received
    assert await is_served(stack)


@pytest.mark.parametrize(
    "trailer",
    [b"t: " + b"a" * 20_000, b"bad\x00: x", b"x: y\r\n" * 3000],
    ids=["large", "not one", "many"],
)
async def test_a_broken_end_of_a_body_ends_the_connection(stack: Stack, trailer: bytes) -> None:
    await stack.serve("demo", FakeEngine("pod-a"))
    last = b"0\r\n" + trailer + b"\r\n\r\n"
    answer = await exchange(stack, CHUNKED + chunk(BODY), last)
    assert b" 400 " in answer
    assert await is_served(stack)


@pytest.mark.parametrize(
    "rest",
    [[b"zz\r\nabc"], [b"ff\r\ncut"], [chunk(b'data: {"torn'), b"-1\r\n"], []],
    ids=["a broken chunk", "a cut chunk", "a torn event and a broken chunk", "no end"],
)
async def test_a_stream_that_breaks_ends_with_an_error_event(
    stack: Stack, rest: list[bytes]
) -> None:
    await stack.serve("demo", RawEngine("pod-a", pieces=[EVENTS + chunk(event("a")), *rest]))
    async with asyncio.timeout(GENEROUS_S), stack.chat() as response:
        first, error = events_of(await response.read())
    assert first["choices"][0]["delta"]["content"] == "a"
    assert error["error"]["code"] == "engine_stopped"


async def test_last_words_are_whole_where_the_engine_told_a_length(stack: Stack) -> None:
    told = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n"
    await stack.serve("demo", RawEngine("pod-a", pieces=[told % 110 + event("a")]))
    async with stack.chat() as response:
        _, error = events_of(await response.read())
    assert error["error"]["code"] == "engine_stopped"


async def test_a_plain_answer_with_a_broken_chunk_is_seen_as_broken(stack: Stack) -> None:
    await stack.serve("demo", RawEngine("pod-a", pieces=[JSON + chunk(b'{"a'), b"zz\r\nabc"]))
    answer = await exchange(stack, chat_bytes())
    assert not answer.endswith(b"0\r\n\r\n")


@pytest.mark.parametrize(
    "answer",
    [
        b"hello there\r\n\r\n",
        EVENTS + b"zz\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"a" * 200_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"h: x\r\n" * 30_000 + b"\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello!",
        b"HTTP/1.1 503 Loading\r\ncontent-length: 12\r\n\r\n{",
    ],
    ids=["no HTTP", "a broken chunk", "a large header", "many headers", "two lengths", "a cut 503"],
)
async def test_an_answer_that_breaks_before_its_first_byte_is_had_elsewhere(
    stack: Stack, answer: bytes
) -> None:
    bad, good = RawEngine("pod-bad", pieces=[answer]), FakeEngine("pod-good")
    await stack.serve("demo", bad, good, routing={"policy": "RoundRobin"})
    for _ in range(2):  # one of two starts at the bad engine
        async with asyncio.timeout(GENEROUS_S), stack.chat() as response:
            assert (await response.read()).endswith(DONE)
            assert response.headers["x-yaie-endpoint"] == "pod-good"
    assert bad.received


async def test_a_silent_stream_ends_with_an_error_event(stack: Stack) -> None:
    engine = FakeEngine("pod-a", pieces=[event("a"), event("late")], itl_s=60.0)
    await stack.serve("demo", engine, routing={"timeoutSeconds": 0.3})
    async with asyncio.timeout(GENEROUS_S), stack.chat() as response:
        _, error = events_of(await response.read())
    assert error["error"]["code"] == "engine_stopped"


# 503 of engines


def busy(name: str, *headers: tuple[str, str], body: bytes = b'{"error": {}}') -> RawEngine:
    """An engine that answers 503, its body in two pieces."""
    told = "".join(f"{header}: {value}\r\n" for header, value in headers)
    head = f"HTTP/1.1 503 Busy\r\n{told}content-length: {len(body)}\r\n\r\n".encode()
    return RawEngine(name, pieces=[head + body[:5], body[5:]])


async def test_a_503_arrives_whole_with_its_retry_after(stack: Stack) -> None:
    body = json.dumps({"error": {"message": "x" * 20_000}}).encode()
    engines = [busy(f"pod-{i}", ("retry-after", "7"), body=body) for i in range(2)]
    await stack.serve("demo", *engines)
    async with stack.chat() as response:
        assert (response.status, response.headers["retry-after"]) == (503, "7")
        assert await response.read() == body
        assert response.headers["x-should-retry"] == "false"
    assert [len(engine.received) for engine in engines] == [1, 1]


async def test_a_503_always_says_when_to_come_back(stack: Stack) -> None:
    await stack.serve("demo", busy("pod-a"))
    async with stack.chat() as response:
        assert (response.status, response.headers["retry-after"]) == (503, "5")


# The shape of errors


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/responses"])
async def test_a_stream_that_breaks_is_told_in_the_events_of_its_api(
    stack: Stack, path: str
) -> None:
    await stack.serve("demo", FakeEngine("pod-a", pieces=[event("a")] * 2, reset_after_pieces=1))
    async with stack.client.post(path, json={"model": "demo", "stream": True}) as response:
        _, last, rest = (await response.read()).split(b"\n\n")
    name, data = last.split(b"\n")
    assert (name, rest) == (b"event: error", b"")
    told = json.loads(data.removeprefix(b"data: "))
    assert told["type"] == "error"
    assert "stopped while it was answering" in told["error"]["message"]


async def test_errors_of_the_router_have_the_envelope_of_the_api(stack: Stack) -> None:
    async with stack.client.post("/v1/messages", json={"model": "nope"}) as response:
        assert response.status == 404
        told = await response.json()
    assert (told["type"], told["error"]["type"]) == ("error", "not_found_error")
    assert told["request_id"] == response.headers["x-request-id"]
    async with stack.client.post("/v1/responses", json={"model": "nope"}) as response:
        assert (await response.json())["error"]["code"] == "model_not_found"
