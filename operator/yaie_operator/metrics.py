"""The operator's metrics, in their own registry."""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from yaie_api import metrics as names


class Metrics:
    """The operator's metrics: one instance per process; tests create their own."""

    content_type: Final = "text/plain; version=0.0.4; charset=utf-8"

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.reconcile_seconds = _histogram(names.OPERATOR_RECONCILE_SECONDS, self.registry)
        self.reconciles = _counter(names.OPERATOR_RECONCILES, self.registry)
        self.writes = _counter(names.OPERATOR_WRITES, self.registry)
        self.queue_depth = _gauge(names.OPERATOR_QUEUE_DEPTH, self.registry)
        self.leader = _gauge(names.OPERATOR_LEADER, self.registry)
        self.watch_age_seconds = _gauge(names.OPERATOR_WATCH_AGE_SECONDS, self.registry)
        self.resync_repairs = _counter(names.OPERATOR_RESYNC_REPAIRS, self.registry)
        self.models = _gauge(names.OPERATOR_MODELS, self.registry)

    def render(self) -> bytes:
        return generate_latest(self.registry)


def _counter(metric: names.Metric, registry: CollectorRegistry) -> Counter:
    return Counter(metric.name, metric.help, metric.labels, registry=registry)


def _gauge(metric: names.Metric, registry: CollectorRegistry) -> Gauge:
    return Gauge(metric.name, metric.help, metric.labels, registry=registry)


def _histogram(metric: names.Metric, registry: CollectorRegistry) -> Histogram:
    return Histogram(
        metric.name, metric.help, metric.labels, registry=registry, buckets=metric.buckets
    )
