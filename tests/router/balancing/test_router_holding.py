"""Requests for a model that is scaled to zero wait for its first engine; others do not wait."""

import asyncio
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from router.conftest import Stack, StackMaker
from router.fakes import DONE, FakeEngine, endpoint_slice, event, inference_model
from router.tenants.test_mount import project
from yaie_api.names import HEADER_TIMEOUT
from yaie_router.balancing import holding

ASLEEP: dict[str, Any] = {
    "replicas": 0,
    "autoscaling": {"min": 0, "max": 2, "idleSeconds": 60, "target": {"activeRequests": 8}},
}
LOADING = {
    "type": "EnginesReady",
    "status": "False",
    "reason": "Starting",
    "message": "Pod demo-1 loads the model and is not ready to answer yet; wait.",
}


async def put_asleep(stack: Stack, **spec: Any) -> None:
    await stack.api.put(inference_model("demo", **{**ASLEEP, **spec}))
    await stack.until(lambda: stack.knows("demo", "demo", 0))


async def wake(stack: Stack, *pieces: bytes, **knobs: Any) -> FakeEngine:
    engine = await FakeEngine(pieces=list(pieces) or [event("awake"), DONE], **knobs).start()
    stack.engines.append(engine)
    await stack.api.put(endpoint_slice("demo", engine))
    return engine


async def ask(stack: Stack, **more: Any) -> tuple[int, str]:
    async with stack.chat(**more) as response:
        return response.status, await response.text()


async def pending(stack: Stack, number: float) -> bool:
    return await stack.metric('yaie_router_pending_requests{model="demo"}') == number


def unlimited() -> aiohttp.TCPConnector:
    return aiohttp.TCPConnector(limit=0)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those who wait are told every 50 ms."""
    monkeypatch.setattr(holding, "FIRST_TOLD_S", 0.05)
    monkeypatch.setattr(holding, "TOLD_EVERY_S", 0.05)


async def test_requests_wait_for_the_first_engine_and_are_answered(stack: Stack) -> None:
    await put_asleep(stack)
    asked = [asyncio.create_task(ask(stack)) for _ in range(5)]
    await stack.until(lambda: pending(stack, 5))
    assert await stack.metric('yaie_router_requests_in_flight{model="demo"}') == 5
    await wake(stack)
    answers = await asyncio.gather(*asked)
    assert {status for status, _ in answers} == {200}
    assert all("awake" in text for _, text in answers)
    assert await pending(stack, 0)


async def test_a_woken_engine_gets_no_more_than_it_runs_at_a_time(stack: Stack) -> None:
    await put_asleep(stack, engine={"maxNumSeqs": 2})
    asked = [asyncio.create_task(ask(stack)) for _ in range(5)]
    await stack.until(lambda: pending(stack, 5))
    engine = await wake(stack, hold_at=1)
    await stack.until(lambda: pending(stack, 3))
    late = asyncio.create_task(ask(stack))  # it comes behind those who wait
    await stack.until(lambda: pending(stack, 4))
    assert len(engine.received) <= 2
    engine.resume.set()
    assert {status for status, _ in await asyncio.gather(*asked, late)} == {200}


@pytest.mark.usefixtures("hasty")
async def test_a_stream_that_waits_is_told_what_for(stack: Stack) -> None:
    await put_asleep(stack)
    async with stack.chat() as response:
        assert response.status == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["x-request-id"]
        assert await response.content.readline() == b": waiting for an engine to be started\n"
        await stack.api.put(
            inference_model("demo", **ASLEEP) | {"status": {"conditions": [LOADING]}}
        )
        async with asyncio.timeout(60):
            while await response.content.readline() != b": loading weights\n":
                pass
        await wake(stack)
        rest = await response.text()
    events = [line for line in rest.splitlines() if line.startswith("data: ")]
    assert len(events) == 2
    assert "awake" in events[0]


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("status", ["400 Bad Request", "503 Service Unavailable"])
async def test_what_an_engine_refuses_ends_a_stream_that_has_begun(
    stack: Stack, status: str
) -> None:
    await put_asleep(stack)
    async with stack.chat() as response:
        await response.content.readline()
        told = b'{"error": {"message": "No such tool.", "type": "invalid_request_error"}}'
        await wake(stack, told, status=status, content_type="application/json")
        lines = [line for line in (await response.text()).splitlines() if line.startswith("data")]
    assert lines == ["data: " + told.decode(), "data: [DONE]"]


@pytest.mark.usefixtures("hasty")
async def test_what_the_router_refuses_ends_a_stream_that_has_begun(stack: Stack) -> None:
    await put_asleep(stack)
    async with stack.chat() as response:
        await response.content.readline()
        await stack.api.put(inference_model("demo", **ASLEEP, suspend=True))
        assert "model_suspended" in await response.text()


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize(
    ("path", "last"),
    [
        ("/v1/messages", "event: error\ndata: {"),
        ("/v1/responses", "event: error\ndata: {"),
        ("/v1/completions", "data: [DONE]"),
    ],
)
async def test_each_api_gets_the_error_in_its_own_form(stack: Stack, path: str, last: str) -> None:
    await put_asleep(stack)
    body = {"model": "demo", "stream": True, "prompt": "hi", "messages": [], "input": "hi"}
    async with stack.client.post(path, json=body) as response:
        await response.content.readline()
        await stack.api.delete("inferencemodels", "demo")
        text = await response.text()
    assert "was deleted while it started" in text
    assert text.strip().rpartition("\n\n")[2].startswith(last)


@pytest.mark.usefixtures("hasty")
async def test_a_client_without_chunks_gets_the_stream_to_the_connections_end(
    stack: Stack,
) -> None:
    await put_asleep(stack)
    reader, writer = await asyncio.open_connection("127.0.0.1", stack.config.port)
    body = b'{"model": "demo", "stream": true, "messages": []}'
    head = (
        b"POST /v1/chat/completions HTTP/1.0\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n"
        % len(body)
    )
    writer.write(head + body)
    told = await asyncio.wait_for(reader.readuntil(b"started\n\n"), 60)
    assert b"chunked" not in told.lower()
    await wake(stack)
    rest = await asyncio.wait_for(reader.read(), 60)
    assert rest.endswith(event("awake") + DONE)
    writer.close()


@pytest.mark.usefixtures("hasty")
async def test_a_tenant_s_stream_that_waits_keeps_its_limits_headers(
    start_router: StackMaker, tmp_path: Path
) -> None:
    project(tmp_path / "keys", "1", a="a")
    project(tmp_path / "limits", "1", a='{"requestsPerMinute": 60}')
    stack = await start_router(
        api_key_dir=tmp_path / "keys", limits_dir=tmp_path / "limits", host="0.0.0.0"
    )
    stack.client.headers["x-api-key"] = "a"
    await put_asleep(stack)
    async with stack.chat() as response:
        assert response.headers["x-ratelimit-limit-requests"] == "60"
        await response.content.readline()
        await wake(stack)
        assert "awake" in await response.text()


@pytest.mark.usefixtures("hasty")
async def test_what_does_not_stream_keeps_its_status(start_router: StackMaker) -> None:
    stack = await start_router(pending_timeout_s=0.5)
    await put_asleep(stack)
    assert (await ask(stack, stream=False))[0] == 503


async def test_how_long_requests_were_held_is_told(stack: Stack) -> None:
    await put_asleep(stack)
    asked = asyncio.create_task(ask(stack))
    await stack.until(lambda: pending(stack, 1))
    await asyncio.sleep(0.2)
    await wake(stack)
    assert (await asked)[0] == 200
    assert await stack.metric('yaie_router_held_seconds_count{model="demo"}') == 1
    assert await stack.metric('yaie_router_held_seconds_sum{model="demo"}') > 0.2


async def test_a_client_that_leaves_gives_its_place_back_at_once(stack: Stack) -> None:
    """The median of nine: a machine with other work may be late once."""
    await put_asleep(stack)
    took_s = []
    for _ in range(9):
        asked = asyncio.create_task(ask(stack))
        await stack.until(lambda: pending(stack, 1))
        left_s = time.monotonic()
        asked.cancel()
        await stack.until(lambda: pending(stack, 0))
        took_s.append(time.monotonic() - left_s)
    assert statistics.median(took_s) < 0.25


async def test_the_clients_own_limit_ends_the_wait(stack: Stack) -> None:
    await put_asleep(stack)
    headers = {HEADER_TIMEOUT: "0.2"}
    body = {"model": "demo", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
    async with stack.client.post("/v1/chat/completions", json=body, headers=headers) as response:
        assert response.status == 504
        assert "within the request's 0." in (await response.json())["error"]["message"]


async def test_an_engine_is_told_what_is_left_of_the_clients_limit(stack: Stack) -> None:
    await put_asleep(stack)
    body = {"model": "demo", "messages": [{"role": "user", "content": "hi"}]}
    asked = asyncio.create_task(
        stack.client.post("/v1/chat/completions", json=body, headers={HEADER_TIMEOUT: "60"})
    )
    await stack.until(lambda: pending(stack, 1))
    await asyncio.sleep(0.2)
    engine = await wake(stack)
    (await asked).close()
    assert 0 < float(engine.received[0].headers[HEADER_TIMEOUT]) < 59.9


async def test_a_suspended_model_says_so_at_once(stack: Stack) -> None:
    await put_asleep(stack, suspend=True)
    async with stack.chat() as response:
        error = (await response.json())["error"]
        assert (response.status, error["code"]) == (503, "model_suspended")
        assert response.headers["retry-after"] == "60"
    assert error["message"] == (
        "Model 'demo' is suspended: spec.suspend is true. No request starts it."
    )


async def test_suspending_ends_the_wait(stack: Stack) -> None:
    await put_asleep(stack)
    asked = asyncio.create_task(ask(stack))
    await stack.until(lambda: pending(stack, 1))
    await stack.api.put(inference_model("demo", **ASLEEP, suspend=True))
    status, text = await asked
    assert status == 503
    assert "model_suspended" in text


async def test_deleting_ends_the_wait(stack: Stack) -> None:
    await put_asleep(stack)
    asked = asyncio.create_task(ask(stack))
    await stack.until(lambda: pending(stack, 1))
    await stack.api.delete("inferencemodels", "demo")
    status, text = await asked
    assert status == 503
    assert "was deleted while it started" in text


async def test_a_model_with_a_minimum_of_one_is_not_waited_for(stack: Stack) -> None:
    autoscaling = {"min": 1, "max": 2, "target": {"activeRequests": 8}}
    await put_asleep(stack, replicas=1, autoscaling=autoscaling)
    assert (await ask(stack))[0] == 503


async def test_more_than_may_wait_get_429(start_router: StackMaker) -> None:
    stack = await start_router(max_pending=2)
    await put_asleep(stack)
    asked = [asyncio.create_task(ask(stack)) for _ in range(2)]
    await stack.until(lambda: pending(stack, 2))
    async with stack.chat() as response:
        assert response.status == 429
        assert 1 <= int(response.headers["retry-after"]) <= 10
    for task in asked:
        task.cancel()


async def test_the_wait_ends_with_what_is_awaited(start_router: StackMaker) -> None:
    stack = await start_router(pending_timeout_s=0.2)
    await put_asleep(stack)
    status, text = await ask(stack)
    assert status == 503
    assert "did not start within 0.2 s: it has 0 replicas." in text


@pytest.mark.drill
async def test_five_hundred_that_wait_are_all_answered_within_seats(
    start_router: StackMaker,
) -> None:
    """One engine of 32 seats comes first, two more a moment later: none gets more than it runs."""
    stack = await start_router(max_pending=512)
    await put_asleep(stack, engine={"maxNumSeqs": 32})
    crowd = replace(stack, client=aiohttp.ClientSession(stack.url, connector=unlimited()))
    asked = [asyncio.create_task(ask(crowd, text=str(n))) for n in range(500)]
    await stack.until(lambda: pending(stack, 500))
    engines = [FakeEngine(name=f"demo-{n}", ttft_s=0.1) for n in range(3)]
    most = [0, 0, 0]

    async def watch() -> None:
        while True:
            for index, engine in enumerate(engines):
                most[index] = max(most[index], len(engine._tasks))
            await asyncio.sleep(0.005)

    watching = asyncio.create_task(watch())
    for index, engine in enumerate(engines):
        await engine.start()
        stack.engines.append(engine)
        await stack.api.put(endpoint_slice("demo", engine, suffix=str(index)))
        await asyncio.sleep(0.2)
    answers = await asyncio.gather(*asked)
    watching.cancel()
    await crowd.client.close()
    assert {status for status, _ in answers} == {200}
    assert min(len(engine.received) for engine in engines) > 50
    assert max(most) <= 1.25 * 32 + 2  # spec.routing.loadFactor, and connections that end
