"""One trace over the router and its engines, and what is passed on without tracing."""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from engine.server.scripted import ids_of, says
from engine.server.test_direct_stream import serving
from fakes.tracing.kept_spans import KeptSpans, KeptTracing
from router.conftest import Stack, StackMaker
from router.fakes import FakeEngine, event
from router.upstream.test_router_usage import RealEngine
from yaie_api.tracing.w3c import read

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"
INVALID = f"00-{TRACE}-{SPAN}-zz"


@pytest_asyncio.fixture
async def traced(start_router: StackMaker) -> AsyncIterator[tuple[Stack, KeptSpans]]:
    """A router whose spans are kept."""
    tracing = KeptTracing()
    yield await start_router(tracing=tracing), tracing.kept


def chat(stack: Stack, **headers: str) -> Any:
    body = {"model": "demo", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
    return stack.client.post("/v1/chat/completions", json=body, headers=headers)


async def test_without_tracing_a_valid_header_passes_unchanged(stack: Stack) -> None:
    engine = FakeEngine("pod-a")
    await stack.serve("demo", engine)
    async with chat(stack, traceparent=PARENT, tracestate="a=1,b=2") as response:
        await response.read()
    async with chat(stack) as response:
        await response.read()
    with_trace, without = engine.received
    assert with_trace.headers["traceparent"] == PARENT
    assert with_trace.headers["tracestate"] == "a=1,b=2"
    assert "traceparent" not in without.headers


async def test_an_invalid_header_is_replaced_and_its_state_dropped(stack: Stack) -> None:
    engine = FakeEngine("pod-a")
    await stack.serve("demo", engine)
    async with chat(stack, traceparent=INVALID, tracestate="a=1") as response:
        await response.read()
    headers = engine.received[0].headers
    found = read([headers["traceparent"]])
    assert found is not None
    assert found.trace_id != TRACE
    assert not found.is_sampled
    assert "tracestate" not in headers


async def test_with_tracing_the_router_begins_traces(traced: tuple[Stack, KeptSpans]) -> None:
    stack, kept = traced
    engine = FakeEngine("pod-a")
    await stack.serve("demo", engine)
    kept.spans.clear()
    async with chat(stack) as response:
        await response.read()
    await stack.until(lambda: has(kept, 2))
    (server,), (client,) = kept.of_kind("server"), kept.of_kind("client")
    assert server.parent_id == ""
    assert client.parent_id == server.context.span_id
    assert engine.received[0].headers["traceparent"] == client.context.header


async def has(kept: KeptSpans, count: int) -> bool:
    return len(kept.spans) >= count


async def test_a_retry_is_two_client_spans_and_the_second_engine_goes_on_from_its_own(
    traced: tuple[Stack, KeptSpans], tmp_path: Path
) -> None:
    stack, kept = traced
    failing = FakeEngine("pod-a", status="500 Internal Server Error", pieces=[b"{}"])
    async with serving(tmp_path, says("so it is", cached_tokens=1), spans=kept) as served:
        real = RealEngine("pod-b", served=served)
        await stack.serve("stub", failing, real, routing={"policy": "RoundRobin"})
        kept.spans.clear()
        for _ in range(2):  # one of the two turns begins at pod-a
            body = {"model": "stub", "prompt": "hello", "stream": True}
            async with stack.client.post("/v1/completions", json=body) as response:
                assert response.status == 200
                await response.read()
        await stack.until(lambda: has(kept, 2 * 3 + 1))
        await stack.client.close()
    retried = next(
        one for one in kept.of_kind("server") if one.attributes.get("yaie.attempts") == 2
    )
    trace = [one for one in kept.spans if one.context.trace_id == retried.context.trace_id]
    first, second = (one for one in trace if one.kind == "client")
    assert first.attributes["yaie.endpoint"] == "pod-a"
    assert first.attributes["error.type"] == "5xx"
    assert first.attributes["http.response.status_code"] == 500
    assert "http.request.resend_count" not in first.attributes
    assert second.attributes["yaie.endpoint"] == "pod-b"
    assert second.attributes["http.request.resend_count"] == 1
    assert second.error == ""
    assert [one.name for one in second.events] == ["first token"]
    (engine,) = (
        one for one in trace if one.kind == "server" and one.parent_id == second.context.span_id
    )
    words = len(ids_of("so it is"))
    for server in (retried, engine):
        assert server.attributes["gen_ai.usage.output_tokens"] == words
        assert server.attributes["gen_ai.request.model"] == "stub"
    assert retried.began_ns <= first.began_ns <= first.ended_ns <= second.began_ns
    assert second.ended_ns <= retried.ended_ns


async def test_a_stream_that_breaks_says_why(traced: tuple[Stack, KeptSpans]) -> None:
    stack, kept = traced
    engine = FakeEngine("pod-a", pieces=[event("a"), event("b")], reset_after_pieces=1)
    await stack.serve("demo", engine)
    async with chat(stack) as response:
        await response.read()
    await stack.until(lambda: has(kept, 2))
    (client,) = kept.of_kind("client")
    assert client.error == "disconnect"


async def test_probes_make_no_spans_and_every_answer_is_logged_with_its_trace(
    traced: tuple[Stack, KeptSpans], caplog: pytest.LogCaptureFixture
) -> None:
    stack, kept = traced
    kept.spans.clear()
    async with stack.client.get("/readyz") as response:
        await response.read()
    async with stack.client.get("/v1/nowhere") as response:
        assert response.status == 404
    await stack.until(lambda: has(kept, 1))
    (server,) = kept.spans
    assert re.fullmatch(r"[0-9a-f]{32}", server.context.trace_id)
    assert server.attributes["http.response.status_code"] == 404
