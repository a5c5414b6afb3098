"""What the router promises about one request, over real sockets."""

import asyncio
import json
import socket
from typing import Any

import aiohttp
import pytest

from ports import free_port
from router.conftest import GENEROUS_S, Stack, StackMaker, is_refused
from router.fakes import DONE, FakeEngine, endpoint_slice, event, inference_model
from yaie_router.health.outlier_detection import FAILURES
from yaie_router.routes import FORWARDED


def chat_bytes(model: str = "demo", *, host: str = "localhost") -> bytes:
    """A raw HTTP/1.1 request of a streaming chat."""
    body = json.dumps(
        {"model": model, "stream": True, "messages": [{"role": "user", "content": "hi"}]}
    ).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: {host}\r\ncontent-length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body


def events_of(raw: bytes) -> list[Any]:
    """Parse a whole SSE body strictly: every event one data line, the last one [DONE]."""
    assert raw.endswith(b"\n\n")
    lines = raw.decode().removesuffix("\n\n").split("\n\n")
    assert all(line.startswith("data: ") for line in lines)
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


async def test_a_stream_arrives_byte_for_byte(stack: Stack) -> None:
    pieces = [b": ping\n\n", event("é\u2028x"), event("z" * 5000)[:-1], b"\n", DONE]
    await stack.serve("demo", FakeEngine("pod-a", pieces=pieces))
    async with stack.chat() as response:
        assert response.status == 200
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert await response.read() == b"".join(pieces)


async def test_each_event_arrives_when_the_engine_sends_it(stack: Stack) -> None:
    engine = FakeEngine("pod-a", pieces=[event("a"), event("b"), DONE], hold_at=1)
    await stack.serve("demo", engine)
    async with stack.chat() as response:
        assert await response.content.readexactly(len(event("a"))) == event("a")
        engine.resume.set()
        assert await response.read() == event("b") + DONE


async def test_the_request_reaches_the_engine_unchanged(stack: Stack) -> None:
    engine = FakeEngine("pod-a")
    await stack.serve("demo", engine)
    body = b'{ "model" : "demo", "messages": [{"role":"user","content":"\\u00e9"}], "x": 1.50 }'
    headers = {
        "content-type": "application/json",
        "authorization": "Bearer secret",
        "x-yaie-endpoint": "forged",
        "x-custom": "kept",
        "x-request-id": "abc-1",
        "x-yaie-timeout-seconds": "12.5",
        "connection": "keep-alive, x-tenant",
        "x-tenant": "as a proxy before the router has told",
    }
    async with stack.client.post("/v1/chat/completions", data=body, headers=headers) as response:
        await response.read()
        assert response.headers["x-request-id"] == "abc-1"
        assert response.headers["x-yaie-endpoint"] == "pod-a"
    (received,) = engine.received
    assert received.path == "/v1/chat/completions"
    assert received.body == body
    assert received.headers["x-custom"] == "kept"
    assert received.headers["authorization"] == "Bearer secret"
    assert received.headers["x-request-id"] == "abc-1"
    assert "x-yaie-endpoint" not in received.headers
    assert received.headers["x-yaie-timeout-seconds"] == "12.5"
    assert received.headers["x-tenant"].startswith("as a proxy")
    assert "connection" not in received.headers or "x-tenant" not in received.headers["connection"]


async def test_headers_that_could_forge_logs_or_routing_are_replaced(stack: Stack) -> None:
    extra = [("x-yaie-endpoint", "forged"), ("server", "uvicorn"), ("x-kept", "yes")]
    await stack.serve("demo", FakeEngine("pod-a", extra_headers=extra))
    bad_id = {"x-request-id": "a b;c"}
    async with stack.client.post(
        "/v1/chat/completions", json={"model": "demo"}, headers=bad_id
    ) as response:
        assert response.headers.getall("x-yaie-endpoint") == ["pod-a"]
        assert response.headers["server"] == "yaie"
        assert response.headers["x-kept"] == "yes"
        assert len(response.headers["x-request-id"]) == 32


@pytest.mark.parametrize("path", FORWARDED[1:])
async def test_the_other_model_routes_are_forwarded_too(stack: Stack, path: str) -> None:
    answer = b'{"ok": true}'
    engine = FakeEngine(
        pieces=[answer], content_type="application/json", content_length=len(answer)
    )
    await stack.serve("demo", engine)
    async with stack.client.post(path, json={"model": "demo", "prompt": "x"}) as response:
        assert await response.json() == {"ok": True}
        assert response.headers["content-length"] == str(len(answer))
    assert engine.received[0].path == path


async def test_a_client_that_waits_for_100_continue_gets_it_first(stack: Stack) -> None:
    await stack.serve("demo", FakeEngine("pod-a"))
    head, _, body = chat_bytes().partition(b"\r\n\r\n")
    reader, writer = await asyncio.open_connection("127.0.0.1", stack.config.port)
    writer.write(head + b"\r\nexpect: 100-continue\r\n\r\n")
    first = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), GENEROUS_S)
    assert first == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(body)
    answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), GENEROUS_S)
    assert answer.startswith(b"HTTP/1.1 200 ")
    writer.close()


async def test_a_client_of_http_1_0_gets_the_bytes_without_chunks(stack: Stack) -> None:
    await stack.serve("demo", FakeEngine("pod-a"))
    reader, writer = await asyncio.open_connection("127.0.0.1", stack.config.port)
    writer.write(chat_bytes().replace(b"HTTP/1.1", b"HTTP/1.0"))
    head, _, body = (await asyncio.wait_for(reader.read(), GENEROUS_S)).partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head.lower()
    assert body == event("a") + event("b") + DONE
    writer.close()


async def test_one_connection_carries_many_requests_on_both_sides(stack: Stack) -> None:
    engine = FakeEngine("pod-a")
    await stack.serve("demo", engine)
    reader, writer = await asyncio.open_connection("127.0.0.1", stack.config.port)
    for _ in range(3):
        writer.write(chat_bytes())
        answer = await asyncio.wait_for(reader.readuntil(b"0\r\n\r\n"), GENEROUS_S)
        assert answer.startswith(b"HTTP/1.1 200 ")
    writer.close()
    assert engine.connections == 1


def refusing(status: int, number: int) -> list[FakeEngine]:
    """Engines that answer nothing but this."""
    answer = b'{"error": {"message": "no"}}'
    return [
        FakeEngine(
            f"pod-{i}",
            status=f"{status} No",
            pieces=[answer],
            content_type="application/json",
            extra_headers=[("retry-after", "7")],
        )
        for i in range(number)
    ]


@pytest.mark.parametrize("status", [400, 404, 413, 422, 501, 504])
async def test_an_engines_refusal_is_passed_on_and_never_retried(stack: Stack, status: int) -> None:
    engines = refusing(status, 2)
    await stack.serve("demo", *engines)
    for _ in range(10):  # and ejects nobody
        async with stack.chat() as response:
            assert response.status == status
            assert response.headers["retry-after"] == "7"
            assert await response.read() == engines[0].pieces[0]
    assert sum(len(engine.received) for engine in engines) == 10
    assert await ejections(stack) == 0


async def ejections(stack: Stack) -> float:
    sample = 'yaie_router_ejections_total{model="demo",reason="%s"}'
    return sum([await stack.metric(sample % reason) for reason in FAILURES])


@pytest.mark.parametrize(("status", "sent"), [(500, 2), (502, 2), (429, 3), (503, 3)])
async def test_when_all_engines_refuse_the_last_refusal_is_passed_on(
    stack: Stack, status: int, sent: int
) -> None:
    engines = refusing(status, 4)
    await stack.serve("demo", *engines)
    async with stack.chat() as response:
        assert response.status == status
        assert response.headers["retry-after"] == "7"
        assert await response.read() == engines[0].pieces[0]
        assert response.headers["x-should-retry"] == "false"
    assert sum(len(engine.received) for engine in engines) == sent


async def test_a_trial_that_shows_nothing_leaves_room_for_another(stack: Stack) -> None:
    """Two engines answer 500 to one request, the second of them on trial: neither is to blame."""
    engines = refusing(500, 2)
    await stack.serve("demo", *engines, routing={"policy": "RoundRobin"})
    engines[0].status = "200 OK"
    for _ in range(12):  # the second is ejected
        async with stack.chat() as response:
            assert response.status == 200
    assert await ejections(stack) == 1
    engines[0].status = "500 No"
    await asyncio.sleep(1.1)  # and half-open
    async with stack.chat() as response:
        assert response.status == 500
    for engine in engines:
        engine.status = "200 OK"

    async def all_serve() -> bool:
        async with stack.chat() as response:
            assert response.status == 200
        sample = 'yaie_router_ejected_endpoints{model="demo"}'
        return await stack.metric(sample) == 0

    await stack.until(all_serve)


async def test_a_request_that_every_engine_fails_on_ejects_none(stack: Stack) -> None:
    engines = refusing(500, 2)
    await stack.serve("demo", *engines)
    for _ in range(12):  # within the budget of retries
        async with stack.chat() as response:
            assert response.status == 500
    assert await ejections(stack) == 0


async def test_a_client_that_leaves_cancels_the_engine(stack: Stack) -> None:
    engine = FakeEngine("pod-a", pieces=[event("a"), event("b")], hold_at=1)
    await stack.serve("demo", engine)
    reader, writer = await asyncio.open_connection("127.0.0.1", stack.config.port)
    writer.write(chat_bytes())
    await reader.readuntil(b"data: ")
    writer.close()
    await asyncio.wait_for(engine.left.wait(), GENEROUS_S)


async def test_a_client_that_leaves_during_prefill_cancels_the_engine(stack: Stack) -> None:
    engine = FakeEngine("pod-a", stall_before_head=True)
    await stack.serve("demo", engine)
    _, writer = await asyncio.open_connection("127.0.0.1", stack.config.port)
    writer.write(chat_bytes())
    await stack.until(lambda: _truth(bool(engine.received)))
    writer.close()
    await asyncio.wait_for(engine.left.wait(), GENEROUS_S)
    sample = 'yaie_router_requests_total{model="demo",route="/v1/chat/completions",status="499"}'
    await stack.until(lambda: _is(stack, sample, 1.0))


@pytest.mark.parametrize("torn", [b"", b'data: {"choi'])
async def test_an_engine_killed_in_mid_stream_ends_it_with_an_error_event(
    stack: Stack, torn: bytes
) -> None:
    pieces = [event("a"), event("b") + torn, event("never")]
    await stack.serve("demo", FakeEngine("pod-a", pieces=pieces, reset_after_pieces=2))
    async with stack.chat() as response:
        raw = await response.read()  # a clean end of the chunked body
    first, second, error = events_of(raw)
    assert first["choices"][0]["delta"]["content"] == "a"
    assert second["choices"][0]["delta"]["content"] == "b"
    assert error["error"]["code"] == "engine_stopped"
    assert await stack.metric('yaie_router_broken_streams_total{model="demo"}') == 1.0


async def test_the_openai_client_raises_when_an_engine_dies_in_mid_stream(stack: Stack) -> None:
    openai = pytest.importorskip("openai")
    await stack.serve(
        "demo", FakeEngine("pod-a", pieces=[event("a"), event("b")], reset_after_pieces=1)
    )
    async with openai.AsyncOpenAI(base_url=stack.url + "/v1", api_key="none") as client:
        stream = await client.chat.completions.create(
            model="demo", messages=[{"role": "user", "content": "hi"}], stream=True
        )
        with pytest.raises(openai.APIError, match="stopped while it was answering"):
            async for _ in stream:
                pass


async def test_a_plain_body_that_breaks_is_seen_as_broken(stack: Stack) -> None:
    engine = FakeEngine(
        "pod-a",
        pieces=[b'{"half": ', b"1}"],
        content_type="application/json",
        content_length=11,
        reset_after_pieces=1,
    )
    await stack.serve("demo", engine)
    with pytest.raises(aiohttp.ClientPayloadError):
        async with stack.chat() as response:
            await response.read()


@pytest.mark.parametrize(
    "fault",
    [
        {"close_before_head": True},
        {"status": "503 Loading", "content_type": "application/json", "pieces": [b"{}"]},
        {"reset_after_pieces": 0},
    ],
    ids=["lost before the head", "503", "lost after the head, before the first byte"],
)
async def test_before_the_first_byte_another_engine_is_tried(
    stack: Stack, fault: dict[str, Any]
) -> None:
    bad, good = FakeEngine("pod-bad", **fault), FakeEngine("pod-good")
    await stack.serve("demo", bad, good, routing={"policy": "RoundRobin"})
    for _ in range(2):  # round robin: one of the two starts at the bad engine
        async with stack.chat() as response:
            assert response.status == 200
            assert response.headers["x-yaie-endpoint"] == "pod-good"
            assert (await response.read()).endswith(DONE)
            if len(bad.received) == 1:
                break
    assert response.headers["x-should-retry"] == "false"
    assert len(bad.received) == 1


async def test_a_refused_connection_goes_to_another_engine_and_ejects_the_first(
    stack: Stack,
) -> None:
    dead, good = FakeEngine("pod-dead"), FakeEngine("pod-good")
    await stack.serve("demo", dead, good, routing={"policy": "RoundRobin"})
    await dead.stop()
    for _ in range(6):
        async with stack.chat() as response:
            assert response.headers["x-yaie-endpoint"] == "pod-good"
    assert await ejections(stack) == 1.0
    assert await stack.metric('yaie_router_retries_total{cause="connect",model="demo"}') == 1.0


async def test_a_request_that_kills_engines_is_sent_to_two_at_most(stack: Stack) -> None:
    engines = [FakeEngine(f"pod-{i}", close_before_head=True) for i in range(4)]
    await stack.serve("demo", *engines)
    async with stack.chat() as response:
        assert response.status == 503
        assert response.headers["x-should-retry"] == "false"
        assert int(response.headers["retry-after"]) >= 1
    assert sum(len(engine.received) for engine in engines) == 2


async def test_a_503_of_the_only_engine_is_passed_on_with_its_retry_after(stack: Stack) -> None:
    answer = b'{"error": {"message": "loading"}}'
    engine = FakeEngine(
        status="503 Loading",
        pieces=[answer],
        content_type="application/json",
        extra_headers=[("retry-after", "9")],
    )
    await stack.serve("demo", engine)
    async with stack.chat() as response:
        assert (response.status, response.headers["retry-after"]) == (503, "9")
        assert await response.read() == answer
        assert "x-should-retry" not in response.headers
    assert len(engine.received) == 1


async def test_retries_stop_when_the_budget_is_spent(stack: Stack) -> None:
    engines = [
        FakeEngine(f"pod-{i}", status="503 No", content_type="application/json", pieces=[b"{}"])
        for i in range(2)
    ]
    await stack.serve("demo", *engines)
    for _ in range(40):
        async with stack.chat() as response:
            assert response.status == 503
    sent = sum(len(engine.received) for engine in engines)
    assert 40 < sent <= 40 + 10 + 40 * 0.2


async def test_a_silent_engine_is_given_up_and_one_other_is_tried(stack: Stack) -> None:
    engines = [FakeEngine(f"pod-{i}", stall_after_head=True) for i in range(3)]
    await stack.serve("demo", *engines, routing={"timeoutSeconds": 0.3})
    async with stack.chat() as response:
        assert response.status == 503
        assert "in time" in (await response.json())["error"]["message"]
    assert sum(len(engine.received) for engine in engines) == 2


async def test_a_slow_reader_slows_its_engine_and_costs_bounded_memory(stack: Stack) -> None:
    megabytes = 64
    piece = event("x" * 65_000)
    engine = FakeEngine("pod-a", pieces=[piece] * (megabytes * 16))
    await stack.serve("demo", engine)
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 10)
        slow.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(slow, ("127.0.0.1", stack.config.port))
        await loop.sock_sendall(slow, chat_bytes())
        await loop.sock_recv(slow, 1000)
        await stack.until(lambda: _settled(engine))
        # Kernel buffers on loopback take a few MB; the router must not have read the rest.
        assert engine.sent_bytes < 12 << 20
        other = FakeEngine("pod-b", pieces=[event("quick"), DONE])
        await stack.serve("other", other)
        async with stack.chat(model="other") as response:
            assert (await response.read()).endswith(DONE)


async def test_a_client_that_stops_reading_is_cut_off_and_frees_its_engine(
    start_router: StackMaker,
) -> None:
    stack = await start_router(client_stall_s=0.4)
    engine = FakeEngine("pod-a", pieces=[event("x" * 65_000)] * 1000)
    await stack.serve("demo", engine)
    _, writer = await asyncio.open_connection("127.0.0.1", stack.config.port, limit=1000)
    writer.write(chat_bytes())
    await asyncio.wait_for(engine.left.wait(), GENEROUS_S)
    writer.close()


async def test_a_slow_client_that_keeps_reading_is_not_cut_off(start_router: StackMaker) -> None:
    stack = await start_router(client_stall_s=1.0)
    pieces = [event("x" * 65_000)] * 200
    await stack.serve("demo", FakeEngine("pod-a", pieces=pieces))
    async with stack.chat() as response:
        size = 0
        async for chunk in response.content.iter_chunked(500_000):
            size += len(chunk)
            await asyncio.sleep(0.05)
    assert size == sum(map(len, pieces))


async def _settled(engine: FakeEngine) -> bool:
    before = engine.sent_bytes
    await asyncio.sleep(0.2)
    return before == engine.sent_bytes > 0


async def test_the_same_prefix_goes_to_the_same_engine_and_others_spread(stack: Stack) -> None:
    engines = [FakeEngine(f"pod-{i}") for i in range(4)]
    await stack.serve("demo", *engines)
    homes = {}
    for turn in range(3):
        for user in range(12):
            async with stack.chat(f"conversation {user}", temperature=turn) as response:
                homes.setdefault(user, set()).add(response.headers["x-yaie-endpoint"])
    assert all(len(home) == 1 for home in homes.values())
    assert len(set().union(*homes.values())) >= 3
    assert await stack.metric('yaie_router_picks_total{model="demo",outcome="home"}') == 36.0


async def test_a_client_that_asks_is_told_why_its_engine_answers(stack: Stack) -> None:
    dead, good = FakeEngine("pod-dead"), FakeEngine("pod-good")
    await stack.serve("demo", dead, good)
    await dead.stop()
    told = []
    for user in range(8):
        body = {"model": "demo", "messages": [{"role": "user", "content": f"user {user}"}]}
        async with stack.client.post(
            "/v1/chat/completions", json=body, headers={"x-yaie-route": "?"}
        ) as response:
            told.append(
                dict(part.split("=") for part in response.headers["x-yaie-route"].split("; "))
            )
    assert {one["outcome"] for one in told} == {"home", "spilled"}
    assert sum(int(one["attempts"]) for one in told) == 9  # one found out
    assert (told[-1]["engines"], told[-1]["ejected"], told[-1]["in-flight"]) == ("2", "1", "1")
    assert all("x-yaie-route" not in received.headers for received in good.received)
    async with stack.chat() as response:
        assert "x-yaie-route" not in response.headers


async def test_each_model_takes_its_engines_in_turn(stack: Stack) -> None:
    for model in ("one", "two"):
        engines = [FakeEngine(f"{model}-{i}") for i in range(2)]
        await stack.serve(model, *engines, routing={"policy": "RoundRobin"})
    used = set()
    for _ in range(4):
        for model in ("one", "two"):
            async with stack.chat(model=model) as response:
                used.add(response.headers["x-yaie-endpoint"])
    assert used == {"one-0", "one-1", "two-0", "two-1"}


async def test_one_popular_prefix_does_not_overload_its_home(stack: Stack) -> None:
    engines = [FakeEngine(f"pod-{i}", hold_at=0) for i in range(4)]
    await stack.serve("demo", *engines)

    async def one() -> None:
        async with stack.chat("the same") as response:
            assert response.status == 200

    def counts() -> list[int]:
        return [len(engine.received) for engine in engines]

    asked = [asyncio.create_task(one()) for _ in range(20)]
    await stack.until(lambda: _truth(sum(counts()) == len(asked)))
    assert max(counts()) <= 8  # it counts as light, and ceil(1.25 · 20 / 4) is 7
    for engine in engines:
        engine.resume.set()
    await asyncio.gather(*asked)


async def test_an_alias_is_served_by_its_model_and_shares_its_home(stack: Stack) -> None:
    engines = [FakeEngine(f"pod-{i}") for i in range(4)]
    names = {"source": "builtin://yaie-demo", "servedName": "org/big", "aliases": ["gpt-4"]}
    await stack.serve("demo", *engines, model=names)
    homes = set()
    for name in ("org/big", "gpt-4"):
        async with stack.chat(model=name) as response:
            assert response.status == 200
            homes.add(response.headers["x-yaie-endpoint"])
    assert len(homes) == 1
    async with stack.chat(model="demo") as response:
        assert response.status == 404


async def test_more_requests_than_the_limit_get_429_with_retry_after(
    start_router: StackMaker,
) -> None:
    stack = await start_router(max_in_flight=1)
    engine = FakeEngine("pod-a", stall_before_head=True)
    await stack.serve("demo", engine)
    held = asyncio.create_task(stack.chat().__aenter__())
    await stack.until(lambda: _truth(bool(engine.received)))
    async with stack.chat() as response:
        assert response.status == 429
        assert response.headers["retry-after"] == "1"
        assert (await response.json())["error"]["type"] == "overloaded_error"
    held.cancel()
    await asyncio.gather(held, return_exceptions=True)
    await asyncio.wait_for(engine.left.wait(), GENEROUS_S)


async def test_draining_turns_readiness_off_and_still_accepts(start_router: StackMaker) -> None:
    stack = await start_router(drain_delay_s=600.0)
    await stack.serve("demo", FakeEngine("pod-a"))
    stack.signals.raised()
    await stack.until(lambda: _is_draining(stack))
    async with stack.client.get("/livez") as live:
        assert live.status == 200
        assert live.headers["connection"] == "close"
    async with stack.chat() as response:
        assert response.headers["connection"] == "close"
        assert (await response.read()).endswith(DONE)


async def test_a_stream_from_before_the_drain_leaves_its_connection_for_one_more_request(
    start_router: StackMaker,
) -> None:
    """It was not told that the connection ends, so a request that follows at once is answered."""
    stack = await start_router(drain_delay_s=600.0)
    engine = FakeEngine("pod-a", pieces=[event("a"), event("b"), DONE], hold_at=1)
    await stack.serve("demo", engine)
    connector = aiohttp.TCPConnector(limit=1)
    url = f"http://127.0.0.1:{stack.config.port}"
    async with aiohttp.ClientSession(url, connector=connector) as client:
        body = {"model": "demo", "messages": [{"role": "user", "content": "a"}], "stream": True}
        async with client.post("/v1/chat/completions", json=body) as response:
            await response.content.readany()
            stack.signals.raised()
            await stack.until(lambda: _is_draining(stack))
            engine.resume.set()
            assert (await response.read()).endswith(DONE)
        await asyncio.sleep(0.05)
        assert len(connector._conns) == 1  # type: ignore[attr-defined, unused-ignore]  # not closed
        async with client.get("/livez") as live:
            assert (live.status, live.headers["connection"]) == (200, "close")


async def test_draining_closes_the_port_and_finishes_streams(start_router: StackMaker) -> None:
    stack = await start_router(drain_delay_s=0.0, drain_timeout_s=600.0)
    engine = FakeEngine("pod-a", pieces=[event("a"), event("b"), DONE], hold_at=1)
    await stack.serve("demo", engine)
    async with stack.chat() as response:
        await response.content.readany()
        stack.signals.raised()
        await stack.until(lambda: is_refused(stack.config.port))
        engine.resume.set()
        assert (await response.read()).endswith(DONE)
    await asyncio.wait_for(asyncio.shield(stack.task), GENEROUS_S)


async def _is_draining(stack: Stack) -> bool:
    async with stack.client.get("/readyz") as ready:
        return ready.status == 503 and (await ready.json())["status"] == "draining"


async def test_an_endpoint_that_nobody_listens_on_gives_503(stack: Stack) -> None:
    ghost = FakeEngine("pod-ghost")
    ghost.port = free_port()
    await stack.api.put(inference_model("demo"))
    await stack.api.put(endpoint_slice("demo", ghost))
    await stack.until(lambda: stack.knows("demo", "demo", 1))
    async with stack.chat() as response:
        assert response.status == 503
        assert "could be reached" in (await response.json())["error"]["message"]
        assert "x-should-retry" not in response.headers


async def _truth(value: bool) -> bool:
    return value


async def _is(stack: Stack, sample: str, value: float) -> bool:
    return await stack.metric(sample) == value
