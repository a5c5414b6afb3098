"""The router's Prometheus metrics. Their names are defined in `yaie_api.metrics`."""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from yaie_api import __version__
from yaie_api import metrics as names
from yaie_api.metrics import Metric
from yaie_router.discovery.objects import Model
from yaie_router.health.outlier_detection import FAILURES, Cause, Failure
from yaie_router.upstream.failover.decision import OUTCOMES

M = TypeVar("M", Counter, Histogram)


class Children(dict[tuple[object, ...], M]):
    """The children of a family by their labels: `labels()` costs twice what the count itself does.

    For families whose children are never removed.
    """

    def __init__(self, family: M) -> None:
        super().__init__()
        self._family: M = family

    def __missing__(self, labels: tuple[object, ...]) -> M:
        child: M = self._family.labels(*labels)
        self[labels] = child
        return child


class Metrics:
    """One attribute for each metric family. Labels are bounded: existing models, engines,
    routes, causes.
    """

    def __init__(self, silence_s: Callable[[], float]) -> None:
        self.registry = CollectorRegistry()
        self.requests = self._counter(names.ROUTER_REQUESTS)
        self.in_flight = self._gauge(names.ROUTER_IN_FLIGHT)
        self.pending = self._gauge(names.ROUTER_PENDING)
        self.queued = self._gauge(names.ROUTER_QUEUED)
        self.rate_limited = self._counter(names.ROUTER_RATE_LIMITED)
        self.tokens = self._counter(names.ROUTER_TOKENS)
        self.endpoints = self._gauge(names.ROUTER_ENDPOINTS)
        self.reached = self._gauge(names.ROUTER_REACHED)
        self.first_byte = self._histogram(names.ROUTER_FIRST_BYTE)
        self.decision = self._histogram(names.ROUTER_DECISION)
        self.picks = self._counter(names.ROUTER_PICKS)
        self.prefix_match = self._histogram(names.ROUTER_PREFIX_MATCH)
        self.prefix_keys = self._gauge(names.ROUTER_PREFIX_KEYS)
        self.held = self._histogram(names.ROUTER_HELD)
        self.retries = self._counter(names.ROUTER_RETRIES)
        self.broken_streams = self._counter(names.ROUTER_BROKEN_STREAMS)
        self.failovers = self._counter(names.ROUTER_FAILOVERS)
        self.ejections = self._counter(names.ROUTER_EJECTIONS)
        self.ejected_endpoints = self._gauge(names.ROUTER_EJECTED)
        self.probes = self._counter(names.ROUTER_PROBES)
        self.dropped_spans = self._counter(names.ROUTER_DROPPED_SPANS)
        self.requests_of = Children(self.requests)
        self.tokens_of = Children(self.tokens)
        self.first_byte_of = Children(self.first_byte)
        self.picks_of = Children(self.picks)
        self.prefix_match_of = Children(self.prefix_match)
        self._gauge(names.ROUTER_API_AGE).set_function(silence_s)
        self._gauge(names.ROUTER_BUILD_INFO).labels(__version__).set(1)

    def ejected(self, model: str, reason: Failure) -> None:
        """Count an ejection."""
        self.ejections.labels(model, reason).inc()

    def counted(self, tenant: str, model: str, prompt: int, completion: int) -> None:
        """Count the tokens of an answer."""
        self.tokens_of[tenant, model, "prompt"].inc(prompt)
        self.tokens_of[tenant, model, "completion"].inc(completion)

    def probed(self, model: str, outcome: str) -> None:
        """Count a probe of a suspect: `ready` or `failed`."""
        self.probes.labels(model, outcome).inc()

    def render(
        self,
        models: Iterable[Model],
        in_flight: Mapping[str, int],
        pending: Mapping[str, int],
        *,
        ejected: Callable[[Iterable[str]], int] = lambda _names: 0,
        queued: Callable[[str], int] = lambda _model: 0,
        prefix_keys: Callable[[str], int] = lambda _model: 0,
    ) -> bytes:
        """Return the text exposition. Gauges of models are set here, not on the hot path.

        `ejected(names)`: how many of these endpoints are ejected. `queued(model)`: how many
        requests wait for a seat. `prefix_keys(model)`: how many its engines have.
        """
        self.endpoints.clear()
        self.reached.clear()
        self.ejected_endpoints.clear()
        self.in_flight.clear()
        self.pending.clear()
        self.queued.clear()
        self.prefix_keys.clear()
        for model in models:
            self._begin_failures(model.name)
            self.endpoints.labels(model.name).set(len(model.endpoints))
            for endpoint in (*model.endpoints, *model.reached):
                self.reached.labels(model.name, endpoint.name).set(1)
            out = ejected(endpoint.name for endpoint in model.endpoints)
            self.ejected_endpoints.labels(model.name).set(out)
            self.in_flight.labels(model.name).set(in_flight.get(model.name, 0))
            self.pending.labels(model.name).set(pending.get(model.name, 0))
            self.queued.labels(model.name).set(queued(model.name))
            self.prefix_keys.labels(model.name).set(prefix_keys(model.name))
        return generate_latest(self.registry)

    def _begin_failures(self, model: str) -> None:
        """Show the counters of failures from 0 on: to Prometheus, a first value is no increase."""
        self.broken_streams.labels(model)
        for failover in OUTCOMES:
            self.failovers.labels(model, failover)
        for reason in FAILURES:
            self.ejections.labels(model, reason)
        for outcome in ("ready", "failed"):
            self.probes.labels(model, outcome)
        for cause in get_args(Cause):
            self.retries.labels(model, cause)

    def _counter(self, metric: Metric) -> Counter:
        name = metric.name.removesuffix("_total")
        return Counter(name, metric.help, metric.labels, registry=self.registry)

    def _gauge(self, metric: Metric) -> Gauge:
        return Gauge(metric.name, metric.help, metric.labels, registry=self.registry)

    def _histogram(self, metric: Metric) -> Histogram:
        return Histogram(
            metric.name, metric.help, metric.labels, buckets=metric.buckets, registry=self.registry
        )


class Silence:
    """Seconds since the API server was last heard, or since the start."""

    def __init__(self) -> None:
        self._heard_s = time.monotonic()

    def heard(self) -> None:
        self._heard_s = time.monotonic()

    def seconds(self) -> float:
        return time.monotonic() - self._heard_s
