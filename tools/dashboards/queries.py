"""PromQL over declared metrics: a metric that does not exist, or a rate of a gauge, is no query."""

from typing import Final

from yaie_api.metrics import Kind, Metric

INTERVAL: Final = "$__rate_interval"
TARGET_LABELS: Final = ("namespace", "pod", "model")
"""What the chart's PodMonitors add: `model` to engines' series only."""


OF_POD: Final = 'pod=~"$pod"'
"""For dashboards that have this variable, too."""


class QueryError(ValueError):
    """A query that would find nothing."""


def rate(metric: Metric, *by: str, where: str = "") -> str:
    """Increase of a counter in a second, summed by labels."""
    _require(metric, "counter")
    return _sum(by, f"rate({metric.name}{_braces(metric, by, where)}[{INTERVAL}])")


def increase(metric: Metric, *by: str, where: str = "") -> str:
    """Increase of a counter in the interval between two points, summed by labels."""
    _require(metric, "counter")
    return _sum(by, f"increase({metric.name}{_braces(metric, by, where)}[{INTERVAL}])")


def quantile(share: float, metric: Metric, *by: str, where: str = "") -> str:
    """Quantile of a histogram, of all series that have the labels in common."""
    _require(metric, "histogram")
    buckets = f"rate({metric.name}_bucket{_braces(metric, by, where)}[{INTERVAL}])"
    return f"histogram_quantile({share:g}, {_sum(('le', *by), buckets)})"


def count_rate(metric: Metric, *by: str, where: str = "") -> str:
    """How many observations a second a histogram gets."""
    _require(metric, "histogram")
    return _sum(by, f"rate({metric.name}_count{_braces(metric, by, where)}[{INTERVAL}])")


def total(metric: Metric, *by: str, where: str = "") -> str:
    """A gauge, summed by labels."""
    _require(metric, "gauge")
    return _sum(by, f"{metric.name}{_braces(metric, by, where)}")


def highest(metric: Metric, *by: str, where: str = "") -> str:
    """The highest value of a gauge among the series that have the labels in common."""
    _require(metric, "gauge")
    return f"max{_by(by)} ({metric.name}{_braces(metric, by, where)})"


def mean(metric: Metric, *by: str, where: str = "") -> str:
    """The mean value of a gauge over the series that have the labels in common."""
    _require(metric, "gauge")
    return f"avg{_by(by)} ({metric.name}{_braces(metric, by, where)})"


def ratio(part: str, whole: str) -> str:
    """A quotient, without a value while the whole is zero."""
    return f"{part} / ({whole} > 0)"


def _sum(by: tuple[str, ...], inner: str) -> str:
    return f"sum{_by(by)} ({inner})"


def _by(labels: tuple[str, ...]) -> str:
    return f" by ({', '.join(labels)})" if labels else ""


def _braces(metric: Metric, by: tuple[str, ...], where: str) -> str:
    """The selector: the variables of every dashboard that the metric's series have, and `where`."""
    labels = set(metric.labels)
    labels |= {"namespace"} if metric.exporter != "operator" else set()
    labels |= {"model"} if metric.exporter == "engine" else set()
    parts = [f'{one}=~"${one}"' for one in ("namespace", "model") if one in labels]
    parts += [OF_POD] if "pod" in by else []
    inside = ", ".join([*parts, *([where] if where else [])])
    return f"{{{inside}}}" if inside else ""


def _require(metric: Metric, kind: Kind) -> None:
    if metric.kind != kind:
        raise QueryError(f"{metric.name} is a {metric.kind}, not a {kind}.")
