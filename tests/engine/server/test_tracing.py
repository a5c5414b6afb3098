"""What a trace tells of a request to an engine."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from engine.server.scripted import ids_of, running, says
from fakes.tracing.kept_spans import KeptSpans
from yaie.core.messages import Generate

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"
CHAT = {"model": "stub", "messages": [{"role": "user", "content": "hello"}]}


def queued(*texts: str) -> Any:
    """Like `says`, after 0.1 ms in the engine's queue."""

    def script(request: Generate) -> Any:
        events = iter(says(*texts, cached_tokens=1)(request))
        first = next(events)
        yield type(first)(first.request_id, first.token_ids, queued_s=0.0001)
        yield from events

    return script


async def test_a_request_is_a_span_with_its_stages_below(tmp_path: Path) -> None:
    kept = KeptSpans()
    async with running(tmp_path, queued("so it is"), spans=kept) as app:
        answer = await app.post("/v1/chat/completions", CHAT, traceparent=PARENT)
        assert answer.status_code == 200
    server = kept.named("POST /v1/chat/completions")
    assert (server.kind, server.context.trace_id, server.parent_id) == ("server", TRACE, SPAN)
    told = server.attributes
    assert told["gen_ai.operation.name"] == "chat"
    assert told["gen_ai.request.model"] == "stub"
    assert told["gen_ai.usage.output_tokens"] == len(ids_of("so it is"))
    assert told["gen_ai.usage.cache_read.input_tokens"] == 1
    assert told["gen_ai.response.finish_reasons"] == ["stop"]
    assert told["gen_ai.request.id"] == answer.headers["x-request-id"]
    assert told["http.response.status_code"] == 200
    assert told["gen_ai.latency.time_in_queue"] == 0.0001
    stages = [kept.named(name) for name in ("queue", "prefill", "decode")]
    assert all(one.parent_id == server.context.span_id for one in stages)
    assert stages[0].ended_ns - stages[0].began_ns == pytest.approx(100_000, abs=1000)
    times = [t for one in stages for t in (one.began_ns, one.ended_ns)]
    assert times == sorted(times)
    assert server.began_ns <= times[0]


async def test_a_stream_is_traced_to_its_end(tmp_path: Path) -> None:
    kept = KeptSpans()
    async with running(tmp_path, queued("so it is"), spans=kept) as app:
        await app.post("/v1/messages", CHAT | {"stream": True, "max_tokens": 9})
    server = kept.named("POST /v1/messages")
    assert server.parent_id == ""
    assert server.attributes["gen_ai.usage.completion_tokens"] == len(ids_of("so it is"))
    assert kept.named("decode").ended_ns <= server.ended_ns


async def test_what_the_client_does_not_sample_makes_no_spans(tmp_path: Path) -> None:
    kept = KeptSpans()
    async with running(tmp_path, says("a"), spans=kept) as app:
        await app.post("/v1/chat/completions", CHAT, traceparent=PARENT[:-1] + "0")
    assert kept.spans == []


async def test_a_refusal_is_a_span_without_stages(tmp_path: Path) -> None:
    kept = KeptSpans()
    async with running(tmp_path, says("a"), spans=kept) as app:
        await app.post("/v1/chat/completions", {"model": "stub"})
    (server,) = kept.spans
    assert server.attributes["http.response.status_code"] == 400


@pytest.mark.parametrize("sink", [KeptSpans(), None])
async def test_log_lines_have_the_trace(
    sink: KeptSpans | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from yaie_api.logs import JsonFormatter

    lines: list[dict[str, Any]] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(json.loads(JsonFormatter().format(record)))  # type: ignore[method-assign]
    caplog.set_level(logging.INFO)
    logging.getLogger("yaie.access").addHandler(handler)
    try:
        async with running(tmp_path, says("a"), spans=sink) as app:
            await app.post("/v1/chat/completions", CHAT, traceparent=PARENT)
            await app.post("/v1/chat/completions", CHAT)
    finally:
        logging.getLogger("yaie.access").removeHandler(handler)
    first, second = lines
    assert first["trace_id"] == TRACE
    assert ("trace_id" in second) == (sink is not None)
