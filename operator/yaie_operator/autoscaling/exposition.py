"""Reads the few figures that the autoscaler needs, from /metrics pages or other samples. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from yaie_api import metrics
from yaie_operator.reconcile.sizes import Sizes

_BUCKET: Final = f"{metrics.ENGINE_TTFT.name}_bucket"
ROUTER_NAMES: Final = (
    metrics.ROUTER_IN_FLIGHT.name,
    metrics.ROUTER_PENDING.name,
    metrics.ROUTER_REQUESTS.name,
)
REACHED: Final = metrics.ROUTER_REACHED.name
ENGINE_NAMES: Final = (
    metrics.ENGINE_RUNNING.name,
    metrics.ENGINE_WAITING.name,
    metrics.ENGINE_KV_UTILIZATION.name,
    metrics.ENGINE_PARAMETERS.name,
    metrics.ENGINE_WEIGHT_BYTES.name,
    metrics.ENGINE_CONTEXT.name,
    metrics.ENGINE_KV_TOKENS.name,
    _BUCKET,
)


Sample = tuple[str, Mapping[str, str], float]
"""Name, labels and value."""


class ExpositionError(ValueError):
    """The text is not Prometheus' format, or lacks what the process always exports."""


@dataclass(frozen=True)
class RouterFigures:
    """One router's figures, by model. `requests`: a counter of those answered. `reached`: the
    engines that it reaches, by pod; None: it does not say, as routers of older versions.
    """

    in_flight: Mapping[str, float] = field(default_factory=dict)
    pending: Mapping[str, float] = field(default_factory=dict)
    requests: Mapping[str, float] = field(default_factory=dict)
    reached: frozenset[str] | None = None


@dataclass(frozen=True)
class EngineFigures:
    """One engine's figures. `ttft`: cumulative counts by upper bound in seconds."""

    running: float = 0.0
    waiting: float = 0.0
    kv_utilization: float = 0.0
    ttft: tuple[tuple[float, float], ...] = ()
    sizes: Sizes = field(default_factory=Sizes)

    @property
    def first_tokens(self) -> float:
        return self.ttft[-1][1] if self.ttft else 0.0


def read_router(text: str) -> RouterFigures:
    """Read a router's page.

    Raises:
        ExpositionError: it is not one.

    """
    figures = router_figures(_parsed(text, (*ROUTER_NAMES, REACHED)))
    # Without engines there are no samples, but the metric's comments are there.
    tells = figures.reached is not None or f"# TYPE {REACHED} " in text
    return replace(figures, reached=figures.reached or frozenset()) if tells else figures


def read_engine(text: str) -> EngineFigures:
    """Read an engine's page.

    Raises:
        ExpositionError: it is not one.

    """
    return engine_figures(_parsed(text, ENGINE_NAMES))


def router_figures(samples: Iterable[Sample]) -> RouterFigures:
    """The figures in samples of one router.

    Raises:
        ExpositionError: a value is not a count.

    """
    found: dict[str, dict[str, float]] = {name: {} for name in ROUTER_NAMES}
    reached: set[str] = set()
    for name, labels, value in _counts(samples):
        if name == REACHED:
            reached.add(labels.get("engine", ""))
            continue
        model = labels.get("model", "")
        found[name][model] = found[name].get(model, 0.0) + value
    in_flight, pending, requests = (found[name] for name in ROUTER_NAMES)
    return RouterFigures(in_flight, pending, requests, frozenset(reached) if reached else None)


def engine_figures(samples: Iterable[Sample]) -> EngineFigures:
    """The figures in samples of one engine.

    Raises:
        ExpositionError: a value is not a count, or what engines always export is missing.

    """
    sums: dict[str, float] = {}
    ttft: dict[float, float] = {}
    for name, labels, value in _counts(samples):
        if name == _BUCKET:
            bound = float(labels.get("le", "inf"))
            ttft[bound] = ttft.get(bound, 0.0) + value
        else:
            sums[name] = sums.get(name, 0.0) + value
    if metrics.ENGINE_RUNNING.name not in sums:
        raise ExpositionError(f"{metrics.ENGINE_RUNNING.name} is missing")
    return EngineFigures(
        running=sums[metrics.ENGINE_RUNNING.name],
        waiting=sums.get(metrics.ENGINE_WAITING.name, 0.0),
        kv_utilization=sums.get(metrics.ENGINE_KV_UTILIZATION.name, 0.0),
        ttft=tuple(sorted(ttft.items())),
        sizes=Sizes(
            parameters=int(sums.get(metrics.ENGINE_PARAMETERS.name, 0)),
            weight_bytes=int(sums.get(metrics.ENGINE_WEIGHT_BYTES.name, 0)),
            context_tokens=int(sums.get(metrics.ENGINE_CONTEXT.name, 0)),
            kv_tokens=int(sums.get(metrics.ENGINE_KV_TOKENS.name, 0)),
        ),
    )


def quantile(increase: Mapping[float, float], share: float) -> float:
    """The quantile of a histogram's increase, by bound, as PromQL's histogram_quantile; 0: empty.

    Beyond the last finite bound, that bound.
    """
    bounds = sorted(increase)
    total = increase[bounds[-1]] if bounds else 0.0
    if total <= 0:
        return 0.0
    rank, low, below = share * total, 0.0, 0.0
    for bound in bounds:
        count = increase[bound]
        if count >= rank:
            if bound == inf:
                return low
            return low + (bound - low) * (rank - below) / max(count - below, 1e-9)
        low, below = bound, count
    return low


def _parsed(text: str, names: tuple[str, ...]) -> Iterator[Sample]:
    """The samples of these names. Other lines are not parsed: a page may have thousands."""
    lines = [line for line in text.splitlines() if line.startswith(names)]
    try:
        families = list(text_string_to_metric_families("\n".join(lines) + "\n"))
    except (ValueError, IndexError, KeyError) as error:
        raise ExpositionError(f"not Prometheus' text format: {error}") from error
    for family in families:
        yield from ((s.name, s.labels, s.value) for s in family.samples if s.name in names)


def _counts(samples: Iterable[Sample]) -> Iterator[Sample]:
    for sample in samples:
        if not 0 <= sample[2] < inf:
            raise ExpositionError(f"{sample[0]} is {sample[2]}")
        yield sample
