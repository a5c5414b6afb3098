"""The operator, the routers, and what a scaler looks at."""

from dashboards import parts
from dashboards.fleet import MODELS, NAMESPACES
from dashboards.grafana import Json, Panel, Query, Row, dashboard
from dashboards.queries import highest, increase, mean, quantile, rate, total
from yaie_api import metrics as m

BY = ("namespace", "model")
READY = 'condition="Ready"'
NOT_READY = f"count({total(m.OPERATOR_MODEL_CONDITION, *BY, where=READY)} == 0) or vector(0)"


def operator() -> Json:
    return dashboard(
        "yaie-operator",
        "yaie / operator and autoscaler",
        "Whether the operator works, and what a scaler decides by.",
        [NAMESPACES, MODELS],
        [
            Row(
                "Operator",
                [
                    parts.stat("Leaders", "1 unless none leads.", total(m.OPERATOR_LEADER)),
                    parts.stat("Models", "Known to the leader.", highest(m.OPERATOR_MODELS)),
                    parts.stat("Queue", "Keys that wait.", highest(m.OPERATOR_QUEUE_DEPTH)),
                    parts.stat(
                        "Not ready",
                        "Models whose condition Ready is false.",
                        NOT_READY,
                    ),
                ],
                columns=4,
            ),
            Row("Reconciling", [reconciles(), reconcile_time(), writes(), watches()], columns=4),
            Row("Models", [parts.replicas(*BY), states(), reasons()]),
            Row(
                "What a scaler looks at",
                [parts.load(*BY), kv_cache(), in_flight(), queue_time()],
                columns=4,
            ),
            Row("Routers", [decisions(), silence(), versions()]),
        ],
    )


def reconciles() -> Panel:
    return Panel(
        "Reconciles",
        "By result: ok, conflict, unreachable or error.",
        "ops",
        [Query(rate(m.OPERATOR_RECONCILES, "result"), "{{result}}")],
        stacked=True,
    )


def reconcile_time() -> Panel:
    return Panel(
        "Time of a reconcile, p99",
        "By what was reconciled.",
        "s",
        [Query(quantile(0.99, m.OPERATOR_RECONCILE_SECONDS, "scope"), "{{scope}}")],
    )


def writes() -> Panel:
    return Panel(
        "Writes to the API server",
        "None in a settled cluster.",
        "ops",
        [Query(rate(m.OPERATOR_WRITES, "kind"), "{{kind}}")],
    )


def watches() -> Panel:
    return Panel(
        "Watches",
        "Age of the oldest answer to a watch, and what only full lists have found.",
        "short",
        [
            Query(highest(m.OPERATOR_WATCH_AGE_SECONDS), "seconds"),
            Query(increase(m.OPERATOR_RESYNC_REPAIRS), "found by lists"),
        ],
    )


def states() -> Panel:
    return Panel(
        "Engines by state",
        "desired, current, updated, ready and draining.",
        "short",
        [Query(total(m.OPERATOR_MODEL_REPLICAS, "state"), "{{state}}")],
    )


def reasons() -> Panel:
    expr = total(m.OPERATOR_MODEL_CONDITION, *BY, "reason", where=READY)
    return Panel(
        "Readiness and its reason",
        "1: ready. 0: not ready, for this reason.",
        "none",
        [Query(expr, "{{namespace}} {{model}} {{reason}}")],
        most=1,
    )


def kv_cache() -> Panel:
    return Panel(
        "KV cache in use, mean",
        "Of all engines of a model.",
        "percentunit",
        [Query(mean(m.ENGINE_KV_UTILIZATION, *BY), "{{namespace}} {{model}}")],
        most=1,
    )


def in_flight() -> Panel:
    return Panel(
        "In flight at routers",
        "Requests being served.",
        "short",
        [Query(total(m.ROUTER_IN_FLIGHT, *BY), "{{namespace}} {{model}}")],
    )


def queue_time() -> Panel:
    return Panel(
        "Time in the queue, p95",
        "Of the engines of a model.",
        "s",
        [Query(quantile(0.95, m.ENGINE_QUEUE, *BY), "{{namespace}} {{model}}")],
    )


def decisions() -> Panel:
    return Panel(
        "Time of a choice, p99",
        "To parse, hash and choose an engine.",
        "s",
        [Query(quantile(0.99, m.ROUTER_DECISION, "namespace"), "{{namespace}}")],
    )


def silence() -> Panel:
    return Panel(
        "Silence of the API server",
        "Time since a router last heard from it. Routers go on with what they know.",
        "s",
        [Query(highest(m.ROUTER_API_AGE, "namespace"), "{{namespace}}")],
    )


def versions() -> Panel:
    return Panel(
        "Versions",
        "Routers and operators by version.",
        "short",
        [
            Query(total(m.ROUTER_BUILD_INFO, "version"), "router {{version}}"),
            Query(total(m.OPERATOR_BUILD_INFO, "version"), "operator {{version}}"),
        ],
    )
