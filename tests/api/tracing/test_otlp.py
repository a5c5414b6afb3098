"""The export by OpenTelemetry's SDK: what a collector gets, and what a dead one costs."""

import logging
import time
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk.trace", reason="needs the extra otel")
pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="needs the extra otel")

from fakes.tracing.collector import collecting
from yaie_api.tracing.settings import Tracing, tracing_of
from yaie_api.tracing.spans import Event, Span, SpanSink
from yaie_api.tracing.w3c import TraceContext

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
CONTEXT = TraceContext(TRACE, SPAN, 1)


def opened(url: str, dropped: list[int]) -> SpanSink:
    tracing = tracing_of(url, {})
    assert tracing is not None
    return tracing.open("yaie-test", dropped.append)


def span(**more: Any) -> Span:
    return Span(
        name="POST /v1/completions",
        kind="server",
        context=CONTEXT,
        began_ns=1_000,
        ended_ns=3_000,
        **({"parent_id": ""} | more),
    )


def test_a_collector_gets_what_the_span_says() -> None:
    dropped: list[int] = []
    with collecting() as collector:
        sink = opened(collector.url, dropped)
        told = {"n": 1, "reasons": ["stop"]}
        happened = [Event(name="first token", at_ns=2_000)]
        sink.take(span(parent_id="b" * 16, attributes=told, events=happened, error="5xx"))
        sink.close()
    (got,) = collector.spans
    assert (got.trace_id.hex(), got.span_id.hex(), got.parent_span_id.hex()) == (
        TRACE,
        SPAN,
        "b" * 16,
    )
    assert (got.name, got.start_time_unix_nano, got.end_time_unix_nano) == (
        "POST /v1/completions",
        1_000,
        3_000,
    )
    assert {one.key for one in got.attributes} == {"n", "reasons"}
    assert [(one.name, one.time_unix_nano) for one in got.events] == [("first token", 2_000)]
    assert (got.status.code, got.status.message) == (2, "5xx")
    resource = collector.got[0].resource_spans[0].resource
    names = {one.key: one.value.string_value for one in resource.attributes}
    assert names["service.name"] == "yaie-test"
    assert dropped == []


def test_the_environment_names_the_service_and_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0")
    with collecting() as collector:
        sink = opened(collector.url, [])
        assert not sink.samples("x", TraceContext.new(), is_remote=False)
        assert sink.samples("x", CONTEXT, is_remote=True)
        assert not sink.samples("x", CONTEXT.sampled(False), is_remote=True)
        sink.take(span())
        sink.close()
    resource = collector.got[0].resource_spans[0].resource
    names = {one.key: one.value.string_value for one in resource.attributes}
    assert names["service.name"] == "mine"


def test_a_refusing_collector_is_told_once_and_its_spans_are_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    dropped: list[int] = []
    with collecting(status=400) as collector:
        sink = opened(collector.url, dropped)
        for _ in range(3):
            sink.take(span())
        sink.close()
    assert sum(dropped) == 3
    assert [one.getMessage() for one in caplog.records] == [
        "the collector takes no spans: they are dropped"
    ]


def test_a_dead_collector_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request waits for nothing, the queue has an end, and so has the process."""
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "600")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    dropped: list[int] = []
    with collecting() as gone:
        url = gone.url
    sink = opened(url, dropped)
    began = time.process_time()
    for _ in range(2_000):
        sink.take(span())
    assert time.process_time() - began < 2.0
    assert sum(dropped) >= 1_400
    closing = time.monotonic()
    sink.close()
    assert time.monotonic() - closing < 5.0


def test_without_a_flag_the_environment_names_the_collector(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        sink = Tracing().open("yaie-test", lambda count: None)
        sink.take(span())
        sink.close()
    assert len(collector.spans) == 1
