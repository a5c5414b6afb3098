"""Histograms of the HTTP process against the library's own."""

from prometheus_client import CollectorRegistry, Histogram, generate_latest

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
