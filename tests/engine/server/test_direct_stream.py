"""Streams over real connections: events are written where their tokens arrive, past the application
and h11. What is sent is read by h11's client, which is strict about framing.
"""

import asyncio
import contextlib
import json
import re
import socket
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any

import h11
import pytest

from engine.server.scripted import (
    THINKING_TEMPLATE,
    TOOLS_TEMPLATE,
    App,
    Script,
    ids_of,
    running,
    says,
)
from yaie.core.messages import Accepted, Event, Generate, Tokens
from yaie.server.web.listener import HttpServer
from yaie.server.web.sockets import bind

CHAT = "/v1/chat/completions"
HELLO = [{"role": "user", "content": "hello"}]
BODIES = {
    CHAT: {"messages": HELLO, "stream_options": {"include_usage": True}},
    "/v1/completions": {"prompt": "hello", "max_tokens": 100},
    "/v1/responses": {"input": "hello"},
    "/v1/messages": {"messages": HELLO, "max_tokens": 100},
}
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}


class Client:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer
        self._parser = h11.Connection(h11.CLIENT)

    async def ask(self, path: str, body: Any) -> None:
        data = json.dumps(body | {"model": "stub", "stream": True}).encode()
        headers = [("host", "127.0.0.1"), ("content-length", str(len(data)))]
        request = h11.Request(method="POST", target=path, headers=headers)
        for event in (request, h11.Data(data=data), h11.EndOfMessage()):
            self.writer.write(self._parser.send(event) or b"")
        await self.writer.drain()

    async def answer(self) -> tuple[h11.Response, bytes]:
        """The whole response; afterwards the connection can be used again."""
        response, body = None, b""
        while not isinstance(event := await self._next(), h11.EndOfMessage):
            if isinstance(event, h11.Response):
                response = event
            elif isinstance(event, h11.Data):
                body += event.data
        assert response is not None
        self._parser.start_next_cycle()
        return response, body

    async def _next(self) -> Any:
        while (event := self._parser.next_event()) is h11.NEED_DATA:
            self._parser.receive_data(await self._reader.read(65536))
        return event


class Served:
    """The application on a real port."""

    def __init__(self, app: App, server: HttpServer, port: int) -> None:
        self.app = app
        self.server = server
        self.port = port

    @contextlib.asynccontextmanager
    async def connected(self, *, receive_bytes: int | None = None) -> AsyncIterator[Client]:
        raw = socket.socket()
        if receive_bytes is not None:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        raw.setblocking(False)
        await asyncio.get_running_loop().sock_connect(raw, ("127.0.0.1", self.port))
        reader, writer = await asyncio.open_connection(sock=raw, limit=1024)
        try:
            yield Client(reader, writer)
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def ask(self, path: str, **fields: Any) -> bytes:
        async with self.connected() as client:
            await client.ask(path, BODIES[path] | fields)
            return (await client.answer())[1]


@contextlib.asynccontextmanager
async def serving(folder: Path, script: Script, **settings: Any) -> AsyncIterator[Served]:
    async with running(folder, script, **settings) as app:
        with bind("127.0.0.1", 0) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            server = HttpServer(app.asgi)
            task = asyncio.create_task(server.serve(sockets=[listener]))
            try:
                yield Served(app, server, listener.getsockname()[1])
            finally:
                server.end()
                await task


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.001)


def payloads(body: bytes) -> list[Any]:
    """What the events tell, without what differs from answer to answer."""
    lines = [line[6:] for line in body.decode().splitlines() if line.startswith("data: ")]
    assert body.endswith(b"\n\n")
    text = re.sub(r'"(id|item_id|call_id)":"[^"]*"', r'"\1":"*"', "\n".join(lines))
    text = re.sub(r'"(created|created_at|completed_at)":\d+', r'"\1":0', text)
    return [line if line == "[DONE]" else json.loads(line) for line in text.split("\n")]


def chat_text(body: bytes) -> str:
    events = [one for one in payloads(body) if one != "[DONE]"]
    deltas = [choice["delta"] for event in events for choice in event["choices"]]
    return "".join(delta.get("content") or "" for delta in deltas)


# -- the same as over any other ASGI server -------------------------------------------------

ANSWERS: dict[str, Script] = {
    "plain": says("Grüße aus Köln 😀 日本語"),
    "stop string": says("one, two and three"),
    "fails": says("half an", finish="error", error="The numbers were not finite."),
}


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("kind", ANSWERS)
async def test_a_stream_says_what_it_says_over_any_server(
    tmp_path: Path, path: str, kind: str
) -> None:
    stop = "stop_sequences" if path == "/v1/messages" else "stop"
    fields = {stop: ["and"]} if kind == "stop string" and path != "/v1/responses" else {}
    async with serving(tmp_path, ANSWERS[kind]) as served:
        body = await served.ask(path, **fields)
        sent = BODIES[path] | fields | {"stream": True}
        other = await served.app.post(path, sent)
    assert payloads(body) == payloads(other.content)
    assert len(payloads(body)) > 4
    assert ("not finite" in body.decode()) == (kind == "fails")
    assert (" three" in body.decode()) == (kind == "stop string" and not fields)


async def both_ways(served: Served, **fields: Any) -> list[dict[str, Any]]:
    """The deltas of a chat, which are the same over any server."""
    body = await served.ask(CHAT, **fields)
    other = await served.app.post(CHAT, BODIES[CHAT] | fields | {"stream": True})
    assert payloads(body) == payloads(other.content)
    return [choice["delta"] for one in payloads(body)[:-1] for choice in one["choices"]]


async def test_tool_calls_go_through_their_parser(tmp_path: Path) -> None:
    text = 'Sure. <tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
    async with serving(
        tmp_path, says(text), template=TOOLS_TEMPLATE, tool_call_parser="hermes"
    ) as served:
        deltas = await both_ways(served, tools=[TOOL])
    pieces = [piece["function"] for delta in deltas for piece in delta.get("tool_calls", ())]
    assert "".join(piece.get("arguments", "") for piece in pieces) == '{"a": 1}'
    assert pieces[0]["name"] == "add"


async def test_reasoning_goes_through_its_parser(tmp_path: Path) -> None:
    async with serving(
        tmp_path,
        says("why so</think>because"),
        template=THINKING_TEMPLATE,
        reasoning_parser="deepseek_r1",
    ) as served:
        deltas = await both_ways(served)
    assert "".join(delta.get("reasoning", "") for delta in deltas) == "why so"
    assert "".join(delta.get("content", "") for delta in deltas) == "because"


async def test_characters_are_whole_though_their_tokens_come_one_by_one(tmp_path: Path) -> None:
    text = "naïve 🎉 e\u0301 日本"
    async with serving(tmp_path, says(text)) as served:
        body = await served.ask(CHAT)
    assert chat_text(body) == text
    assert "\ufffd" not in body.decode()


async def test_usage_comes_before_the_end_and_with_every_chunk_where_asked_for(
    tmp_path: Path,
) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    async with serving(tmp_path, says("hello there", finish="length")) as served:
        events = payloads(await served.ask(CHAT, stream_options=options))
    counts = [event["usage"]["completion_tokens"] for event in events[1:-1]]
    assert counts == sorted(counts)
    assert counts[-1] == len(ids_of("hello there"))
    assert events[-2]["choices"] == []
    assert events[-1] == "[DONE]"


# -- connections ----------------------------------------------------------------------------


async def test_a_connection_serves_one_stream_after_the_other(tmp_path: Path) -> None:
    async with serving(tmp_path, says("hello there")) as served, served.connected() as client:
        for _ in range(3):
            await client.ask(CHAT, BODIES[CHAT])
            response, body = await client.answer()
            headers = dict(response.headers)
            assert headers[b"transfer-encoding"] == b"chunked"
            assert headers[b"content-type"].startswith(b"text/event-stream")
            assert b"x-request-id" in headers
            assert chat_text(body) == "hello there"


async def test_http_1_0_gets_no_chunks(tmp_path: Path) -> None:
    async with serving(tmp_path, says("hello there")) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        data = json.dumps(BODIES[CHAT] | {"stream": True}).encode()
        head = f"POST {CHAT} HTTP/1.0\r\nhost: 127.0.0.1\r\ncontent-length: {len(data)}\r\n\r\n"
        writer.write(head.encode() + data)
        head_text, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
    assert b"chunked" not in head_text.lower()
    assert chat_text(body) == "hello there"


async def test_a_slow_reader_holds_little_and_misses_nothing(tmp_path: Path) -> None:
    """Beyond the transport's high-water mark tokens wait, and come together afterwards."""
    text = "word " * 900
    count = len(ids_of(text))
    async with (
        serving(tmp_path, says(text)) as served,
        served.connected(receive_bytes=4096) as client,
    ):
        await client.ask(CHAT, BODIES[CHAT])
        engine = served.app.service.engine
        await until(lambda: served.app.engine.requests and not engine.num_live)
        (protocol,) = served.server.server_state.connections
        held = protocol.transport.get_write_buffer_size()  # type: ignore[union-attr]
        body = (await client.answer())[1]
    assert 0 < held < 80 * 1024
    assert chat_text(body) == text
    assert len(payloads(body)) < count


@pytest.mark.parametrize("path", BODIES)
async def test_a_client_that_leaves_aborts_its_request_at_once(tmp_path: Path, path: str) -> None:
    async with serving(tmp_path, says("word " * 300)) as served:
        async with served.connected() as client:
            await client.ask(path, BODIES[path])
            await until(lambda: served.app.engine.requests)
        await until(lambda: served.app.engine.aborts)
        (request,) = served.app.engine.requests
        assert [one.request_id for one in served.app.engine.aborts] == [request.request_id]
        assert served.app.service.engine.num_live == 0


async def test_a_slow_reader_that_leaves_aborts_its_request(tmp_path: Path) -> None:
    def script(request: Generate) -> Iterable[Event]:
        word = ids_of("word ")
        for _ in range(1500):
            yield Tokens(request.request_id, tuple(word))

    async with serving(tmp_path, script) as served:
        async with served.connected(receive_bytes=4096) as client:
            await client.ask(CHAT, BODIES[CHAT])
            connections = served.server.server_state.connections
            await until(lambda: any(one.flow.write_paused for one in connections))  # type: ignore[union-attr]
        await until(lambda: served.app.engine.aborts)
        assert len(served.app.engine.aborts) == 1


async def test_streams_that_end_in_one_step_all_end(tmp_path: Path) -> None:
    async with serving(tmp_path, lambda _: ()) as served, contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(served.connected()) for _ in range(12)]
        for client in clients:
            await client.ask(CHAT, BODIES[CHAT])
        engine = served.app.service.engine
        await until(lambda: engine.num_live == len(clients))
        await asyncio.sleep(0.05)
        requests = [one.request_id for one in served.app.engine.requests]
        for request_id in requests:
            engine.dispatch(Tokens(request_id, tuple(ids_of("all"))))
        await asyncio.sleep(0.02)
        for request_id in requests:
            engine.dispatch(Tokens(request_id, tuple(ids_of(" at once")), "length"))
        bodies = [(await client.answer())[1] for client in clients]
        assert engine.num_live == 0
        assert served.app.engine.aborts == []
    for body in bodies:
        assert chat_text(body) == "all at once"
        reasons = [c["finish_reason"] for one in payloads(body)[:-1] for c in one["choices"]]
        assert reasons[-1] == "length"


async def test_steps_that_come_together_are_one_chunk(tmp_path: Path) -> None:
    def script(_: Generate) -> Iterable[Event]:
        return ()

    async with serving(tmp_path, script) as served, served.connected() as client:
        await client.ask(CHAT, BODIES[CHAT])
        engine = served.app.service.engine
        await until(lambda: served.app.engine.requests)
        await asyncio.sleep(0.05)
        (request,) = served.app.engine.requests
        engine.dispatch(Accepted(request.request_id))
        for word in ("one", " two", " three"):
            engine.dispatch(Tokens(request.request_id, tuple(ids_of(word))))
        await asyncio.sleep(0.02)
        engine.dispatch(Tokens(request.request_id, (), "stop"))
        body = (await client.answer())[1]
    contents = [c["delta"].get("content") for one in payloads(body)[:-1] for c in one["choices"]]
    assert contents == ["", "one two three", None]


async def test_a_defect_in_one_stream_leaves_the_others_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from yaie.server.answers.chunks import ChatChunks

    usual = ChatChunks.text

    def broken(self: ChatChunks, text: str, top: bytes) -> bytes:
        if "bad" in text:
            raise ValueError("/secret/path")
        return usual(self, text, top)

    monkeypatch.setattr(ChatChunks, "text", broken)
    async with serving(tmp_path, lambda _: ()) as served, contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(served.connected()) for _ in range(2)]
        engine = served.app.service.engine
        for number, client in enumerate(clients):
            await client.ask(CHAT, BODIES[CHAT])
            await until(lambda number=number: len(served.app.engine.requests) > number)
        await asyncio.sleep(0.05)
        first, second = [one.request_id for one in served.app.engine.requests]
        engine.dispatch(Tokens(first, tuple(ids_of("bad"))))
        engine.dispatch(Tokens(second, tuple(ids_of("good"))))
        engine.dispatch(Tokens(second, (), "stop"))
        bad, good = [(await client.answer())[1] for client in clients]
        assert [one.request_id for one in served.app.engine.aborts] == [first]
    assert b"engine_error" in bad
    assert b"/secret" not in bad
    assert chat_text(good) == "good"
