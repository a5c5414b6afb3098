"""The Prometheus metrics of an HTTP process: its own, and those of the engine's last `Stats`.

Names and buckets are defined in `yaie_api.metrics`. Each `ServerMetrics` has its own registry.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, chain
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from yaie.config import ModelInfo
from yaie.core.messages import Stats
from yaie_api import __version__
from yaie_api import metrics as names

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


Snapshot = list[tuple[str, list[tuple[str, dict[str, str], float]]]]
"""The families of a registry: the name of each, and its samples as (name, labels, value)."""


class ServerMetrics:
    """Counters and histograms of requests, and the engine's own metrics once it has sent any."""

    def __init__(self, engine: "EngineStatus | None" = None) -> None:
        # Otherwise the library adds a `_created` series to each.
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the library types it not
        self.registry = CollectorRegistry()
        self._requests = _counter(names.ENGINE_HTTP_REQUESTS, self.registry)
        self._finished = _counter(names.ENGINE_GENERATIONS, self.registry)
        self._ttft = Distribution(names.ENGINE_TTFT, self.registry)
        self._itl = Distribution(names.ENGINE_ITL, self.registry)
        self._e2e = Distribution(names.ENGINE_E2E, self.registry)
        self._queue = Distribution(names.ENGINE_QUEUE, self.registry)
        self._prefill = Distribution(names.ENGINE_PREFILL, self.registry)
        self._decode = Distribution(names.ENGINE_DECODE, self.registry)
        self._prompt_length = Distribution(names.ENGINE_PROMPT_LENGTH, self.registry)
        self._output_length = Distribution(names.ENGINE_OUTPUT_LENGTH, self.registry)
        self._unknown_fields = _counter(names.ENGINE_UNKNOWN_FIELDS, self.registry)
        self._dropped_spans = _counter(names.ENGINE_DROPPED_SPANS, self.registry)
        for reason in ("stop", "length", "tool_calls", "abort", "error"):
            self._finished.labels(reason)
        self._engine = engine

    def answered(self, route: str, status: int) -> None:
        self._requests.labels(route, str(status)).inc()

    def first_token(self, seconds: float) -> None:
        self._ttft.observe(seconds)

    def queued(self, seconds: float) -> None:
        self._queue.observe(seconds)

    def prefilled(self, seconds: float) -> None:
        self._prefill.observe(max(0.0, seconds))

    def decoded(self, seconds: float, num_tokens: int) -> None:
        """Record an output's length, and the time from its first token to its last one."""
        self._decode.observe(seconds)
        self._output_length.observe(num_tokens)

    def prompt(self, num_tokens: int) -> None:
        self._prompt_length.observe(num_tokens)

    def more_tokens(self, seconds: float, count: int) -> None:
        """Record that `count` tokens came `seconds` after the token before them."""
        self._itl.observe(seconds / count, count)

    def finished(self, reason: str, seconds: float) -> None:
        self._finished.labels(reason).inc()
        self._e2e.observe(seconds)

    def unknown_fields(self, count: int) -> None:
        self._unknown_fields.inc(count)

    def dropped_spans(self, count: int) -> None:
        self._dropped_spans.inc(count)

    def snapshot(self) -> Snapshot:
        """Return what this process has measured, so that another one can add it to its own."""
        return [
            (family.name, [(one.name, one.labels, one.value) for one in family.samples])
            for family in self.registry.collect()
        ]

    def render(
        self,
        others: Sequence[Snapshot] = (),
        renamed: Callable[[Iterable[Collector]], Collector] | None = None,
    ) -> bytes:
        """Return the text exposition. `others`: snapshots of the server's other HTTP processes.

        `renamed` makes a collector of what is shown, which is then shown, too.
        """
        shown = CollectorRegistry()
        collectors: list[Collector] = [_Sums(self.registry, others)]
        if self._engine is not None:
            collectors.append(self._engine)
        if renamed is not None:
            collectors.append(renamed(tuple(collectors)))
        for collector in collectors:
            shown.register(collector)
        return generate_latest(shown)


class Distribution(Collector):
    """A histogram without labels, for one thread.

    The library's own histogram takes two locks and loops over its buckets: 2 µs for each token.
    This one does a single binary search.
    """

    def __init__(self, metric: names.Metric, registry: CollectorRegistry) -> None:
        self._metric = metric
        self._counts = [0] * (len(metric.buckets) + 1)
        self._sum = 0.0
        registry.register(self)

    def observe(self, value: float, count: int = 1) -> None:
        """Record `count` observations of the same value."""
        self._counts[bisect_left(self._metric.buckets, value)] += count
        self._sum += value * count

    def collect(self) -> Iterator[HistogramMetricFamily]:
        bounds = [floatToGoString(bound) for bound in (*self._metric.buckets, math.inf)]  # type: ignore[no-untyped-call]  # the library types it not
        buckets = list(zip(bounds, accumulate(self._counts), strict=True))
        family = HistogramMetricFamily(self._metric.name, self._metric.help)
        family.add_metric([], buckets, self._sum)
        yield family


class _Sums(Collector):
    """Adds the samples of snapshots to the families of a registry, all counters or histograms."""

    def __init__(self, registry: CollectorRegistry, others: Sequence[Snapshot]) -> None:
        self._registry = registry
        self._others = others

    def collect(self) -> Iterator[Metric]:
        found: dict[str, list[tuple[str, dict[str, str], float]]] = {}
        for name, samples in chain.from_iterable(self._others):
            found.setdefault(name, []).extend(samples)
        for family in self._registry.collect():
            yield _added(family, found.get(family.name, []))


def _added(family: Metric, samples: Sequence[tuple[str, dict[str, str], float]]) -> Metric:
    sums: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    own = ((one.name, one.labels, one.value) for one in family.samples)
    for name, labels, value in (*own, *samples):
        key = (name, tuple(labels.items()))
        sums[key] = sums.get(key, 0.0) + value
    added = Metric(family.name, family.documentation, family.type)
    for (name, label_items), value in sums.items():
        added.add_sample(name, dict(label_items), value)
    return added


class EngineStatus(Collector):
    """The engine's counters and gauges, read from its last `Stats` when they are scraped.

    A new engine process starts again from zero, which Prometheus treats as a counter reset.
    """

    def __init__(
        self,
        stats: Callable[[], Stats | None],
        restarts: Callable[[], int],
        info: Callable[[], ModelInfo | None] = lambda: None,
    ) -> None:
        self._stats = stats
        self._restarts = restarts
        self._info = info

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        built = GaugeMetricFamily(
            names.ENGINE_BUILD_INFO.name,
            names.ENGINE_BUILD_INFO.help,
            labels=names.ENGINE_BUILD_INFO.labels,
        )
        built.add_metric([__version__], 1.0)
        yield built
        yield _family(names.ENGINE_RESTARTS, self._restarts())
        info, stats = self._info(), self._stats()
        if info is not None:
            for metric, value in _sizes(info):
                yield _family(metric, value)
        if stats is not None:
            for metric, value in _values(stats):
                yield _family(metric, value)


def _sizes(info: ModelInfo) -> Iterator[tuple[names.Metric, float]]:
    """What does not change while the model is loaded."""
    yield names.ENGINE_PARAMETERS, info.parameters
    yield names.ENGINE_WEIGHT_BYTES, info.weight_bytes
    yield names.ENGINE_CONTEXT, info.max_model_len
    yield names.ENGINE_KV_TOKENS, max(0, info.kv_pages - 1) * info.page_size  # one is scratch


def _values(stats: Stats) -> Iterator[tuple[names.Metric, float]]:
    yield names.ENGINE_RUNNING, stats.running
    yield names.ENGINE_WAITING, stats.waiting
    used = stats.pages_total - stats.pages_free - stats.pages_cached
    yield names.ENGINE_KV_UTILIZATION, used / stats.pages_total if stats.pages_total else 0.0
    yield names.ENGINE_KV_PAGES, stats.pages_total
    yield names.ENGINE_KV_PAGES_FREE, stats.pages_free
    yield names.ENGINE_KV_PAGES_CACHED, stats.pages_cached
    yield names.ENGINE_PREFIX_KEYS, stats.prefix_keys
    yield names.ENGINE_PROMPT_TOKENS, stats.prompt_tokens
    yield names.ENGINE_CACHED_PROMPT_TOKENS, stats.cached_prompt_tokens
    yield names.ENGINE_GENERATED_TOKENS, stats.generated_tokens
    yield names.ENGINE_PREEMPTIONS, stats.preemptions
    yield names.ENGINE_HOST_PAGES, stats.host_pages_total
    yield names.ENGINE_HOST_PAGES_USED, stats.host_pages_used
    yield names.ENGINE_SWAPS_OUT, stats.swaps_out
    yield names.ENGINE_SWAPS_IN, stats.swaps_in
    yield names.ENGINE_STEPS, stats.steps
    yield names.ENGINE_STEP_SECONDS, stats.step_seconds
    yield names.ENGINE_STEP_BUDGET, stats.step_budget_tokens
    yield names.ENGINE_STEPS_PAST_TARGET, stats.steps_past_target
    yield names.ENGINE_LATE_COMPILATIONS, stats.late_compilations


def _family(metric: names.Metric, value: float) -> CounterMetricFamily | GaugeMetricFamily:
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    return kind(metric.name, metric.help, value=value)


def _counter(metric: names.Metric, registry: CollectorRegistry) -> Counter:
    return Counter(metric.name, metric.help, metric.labels, registry=registry)
