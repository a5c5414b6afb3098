"""Histograms of the HTTP process against the library's own."""

from collections.abc import Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry, Histogram, generate_latest

from engine.server.scripted import running
from yaie.core.messages import Event, Generate, Tokens
from yaie.server.metrics import Distribution, ServerMetrics
from yaie_api import metrics as names

SECONDS = (0.0, 0.125, 0.25, 0.5, 1.0, 60.0, 61.0)


def test_a_histogram_reads_as_the_library_s_own() -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    metric = names.ENGINE_ITL
    found = Distribution(metric, ours)
    expected = Histogram(metric.name, metric.help, buckets=metric.buckets, registry=theirs)
    for seconds in SECONDS:
        found.observe(seconds, 2)
        for _ in range(2):
            expected.observe(seconds)
    lines = generate_latest(theirs).decode().splitlines()
    assert generate_latest(ours).decode().splitlines() == [x for x in lines if "_created" not in x]


def test_tokens_that_come_together_share_their_time() -> None:
    metrics = ServerMetrics()
    metrics.more_tokens(0.04, 4)
    text = metrics.render().decode()
    assert "yaie_engine_inter_token_latency_seconds_count 4.0" in text
    assert 'yaie_engine_inter_token_latency_seconds_bucket{le="0.01"} 4.0' in text
    assert "yaie_engine_inter_token_latency_seconds_sum 0.04" in text


def queued_for_two_seconds(request: Generate) -> Iterator[Event]:
    """Three tokens, of which the last two come together."""
    identity = request.request_id
    yield Tokens(identity, request.prompt_token_ids[:1], queued_s=2.0)
    yield Tokens(identity, request.prompt_token_ids[:2], "length")


async def test_a_generation_is_measured_in_its_phases_and_its_lengths(tmp_path: Path) -> None:
    async with running(tmp_path, queued_for_two_seconds) as app:
        body = {"prompt": "some words", "max_tokens": 3}
        answer = await app.post("/v1/completions", body)
        assert answer.status_code == 200
        value = app.service.metrics.registry.get_sample_value
        assert value("yaie_engine_queue_seconds_sum") == 2.0
        for phase in ("queue", "prefill", "decode", "time_to_first_token"):
            assert value(f"yaie_engine_{phase}_seconds_count") == 1, phase
        usage = answer.json()["usage"]
        assert value("yaie_engine_prompt_length_tokens_sum") == usage["prompt_tokens"]
        assert value("yaie_engine_output_length_tokens_sum") == usage["completion_tokens"] == 3
