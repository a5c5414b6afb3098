"""Panels that several dashboards have."""

from dashboards.grafana import Panel, Query, Unit
from dashboards.queries import count_rate, highest, quantile, rate, ratio, total
from yaie_api import metrics as m
from yaie_api.metrics import Metric

FAILED = 'status=~"5.."'


def quantiles(metric: Metric, title: str, about: str) -> Panel:
    """The median, the 95th and the 99th percentile of a latency or a length."""
    unit: Unit = "s" if metric.unit == "seconds" else "short"
    shares = ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"))
    queries = [Query(quantile(share, metric), name) for share, name in shares]
    return Panel(title, about, unit, queries)


def worst(metric: Metric, title: str, about: str, *by: str) -> Panel:
    """The 99th percentile of a latency, for each value of the labels."""
    legend = " ".join(f"{{{{{label}}}}}" for label in by)
    return Panel(title, about, "s", [Query(quantile(0.99, metric, *by), legend)])


def requests(*by: str) -> Panel:
    return Panel(
        "Requests",
        "Answered at the router.",
        "reqps",
        [Query(rate(m.ROUTER_REQUESTS, *by), _legend(by))],
    )


def failed(*by: str) -> str:
    """Share of answers with a 5xx status, 0 where there are none."""
    every = rate(m.ROUTER_REQUESTS, *by)
    return ratio(f"({rate(m.ROUTER_REQUESTS, *by, where=FAILED)} or {every} * 0)", every)


def failures(*by: str) -> Panel:
    return Panel(
        "Failed requests",
        "Share of requests that the router answered with a 5xx status.",
        "percentunit",
        [Query(failed(*by), _legend(by))],
        most=1,
    )


def tokens(*by: str) -> Panel:
    return Panel(
        "Tokens",
        "Generated, and prompt tokens of admitted generations.",
        "ops",
        [
            Query(rate(m.ENGINE_GENERATED_TOKENS, *by), f"generated {_legend(by)}".strip()),
            Query(rate(m.ENGINE_PROMPT_TOKENS, *by), f"prompt {_legend(by)}".strip()),
        ],
    )


def load(*by: str) -> Panel:
    return Panel(
        "Running and waiting",
        "Generations that take part in steps, and those in the waiting queue.",
        "short",
        [
            Query(total(m.ENGINE_RUNNING, *by), f"running {_legend(by)}".strip()),
            Query(total(m.ENGINE_WAITING, *by), f"waiting {_legend(by)}".strip()),
        ],
    )


def kv_cache(*by: str) -> Panel:
    return Panel(
        "KV cache in use",
        "Share of KV pages held by live generations; of the fullest engine. Cached prefixes do not "
        "count: they make room.",
        "percentunit",
        [Query(highest(m.ENGINE_KV_UTILIZATION, *by), _legend(by))],
        most=1,
    )


def prefix_hits(*by: str) -> Panel:
    cached = rate(m.ENGINE_CACHED_PROMPT_TOKENS, *by)
    return Panel(
        "Prompt tokens found in the prefix cache",
        "Share of the prompt tokens of admitted generations.",
        "percentunit",
        [Query(ratio(cached, rate(m.ENGINE_PROMPT_TOKENS, *by)), _legend(by))],
        most=1,
    )


def generations(*by: str) -> Panel:
    return Panel(
        "Generations begun",
        "That got a first token.",
        "ops",
        [Query(count_rate(m.ENGINE_TTFT, *by), _legend(by))],
    )


def replicas(*by: str) -> Panel:
    """Engines that are desired and ready, as the operator sees them."""
    return Panel(
        "Engines",
        "Desired and ready, as the operator sees them.",
        "short",
        [
            Query(
                highest(m.OPERATOR_MODEL_REPLICAS, *by, where=f'state="{state}"'),
                f"{state} {_legend(by)}".strip(),
            )
            for state in ("desired", "ready")
        ],
    )


def stat(title: str, about: str, expr: str, unit: Unit = "short") -> Panel:
    return Panel(title, about, unit, [Query(expr, "")], kind="stat")


def _legend(by: tuple[str, ...]) -> str:
    return " ".join(f"{{{{{label}}}}}" for label in by)
