"""The operator's metrics, in their own registry."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from yaie_api import __version__
from yaie_api import metrics as names
from yaie_operator.cluster import Object

RESULTS: Final = ("ok", "conflict", "unreachable", "error")


class Metrics:
    """The operator's metrics: one instance per process; tests create their own."""

    content_type: Final = "text/plain; version=0.0.4; charset=utf-8"

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        _gauge(names.OPERATOR_BUILD_INFO, self.registry).labels(__version__).set(1)
        self.shown_models: Callable[[], Iterable[Object]] = tuple
        """The models whose statuses the page tells."""
        self.reconcile_seconds = _histogram(names.OPERATOR_RECONCILE_SECONDS, self.registry)
        self.reconciles = _counter(names.OPERATOR_RECONCILES, self.registry)
        for scope, result in product(("model", "namespace"), RESULTS):
            self.reconciles.labels(scope, result)  # from 0 on: a first value is no increase
        self.writes = _counter(names.OPERATOR_WRITES, self.registry)
        self.queue_depth = _gauge(names.OPERATOR_QUEUE_DEPTH, self.registry)
        self.leader = _gauge(names.OPERATOR_LEADER, self.registry)
        self.watch_age_seconds = _gauge(names.OPERATOR_WATCH_AGE_SECONDS, self.registry)
        self.resync_repairs = _counter(names.OPERATOR_RESYNC_REPAIRS, self.registry)
        self.models = _gauge(names.OPERATOR_MODELS, self.registry)
        self.desired_replicas = _gauge(names.OPERATOR_DESIRED_REPLICAS, self.registry)

    async def render(self) -> bytes:
        """The page in the text format. A thread writes the models' part, which takes 0.2 ms of CPU
        a model: the event loop goes on meanwhile.
        """
        statuses = Statuses(tuple(self.shown_models()))
        own = generate_latest(self.registry)
        return own + await asyncio.to_thread(generate_latest, statuses)


@dataclass(frozen=True)
class Statuses(Collector):
    """Conditions and replicas of InferenceModels, as their statuses say."""

    models: tuple[Object, ...]

    def collect(self) -> Iterator[GaugeMetricFamily]:
        conditions = _family(names.OPERATOR_MODEL_CONDITION)
        replicas = _family(names.OPERATOR_MODEL_REPLICAS)
        for model in self.models:
            who = [model["metadata"]["namespace"], model["metadata"]["name"]]
            status = model.get("status", {})
            for one in status.get("conditions", ()):
                is_true = float(one["status"] == "True")
                conditions.add_metric([*who, one["type"], one["reason"]], is_true)
            for state, count in status.get("replicas", {}).items():
                replicas.add_metric([*who, state], count)
        yield conditions
        yield replicas


def _family(metric: names.Metric) -> GaugeMetricFamily:
    return GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)


def _counter(metric: names.Metric, registry: CollectorRegistry) -> Counter:
    return Counter(metric.name, metric.help, metric.labels, registry=registry)


def _gauge(metric: names.Metric, registry: CollectorRegistry) -> Gauge:
    return Gauge(metric.name, metric.help, metric.labels, registry=registry)


def _histogram(metric: names.Metric, registry: CollectorRegistry) -> Histogram:
    return Histogram(
        metric.name, metric.help, metric.labels, registry=registry, buckets=metric.buckets
    )
