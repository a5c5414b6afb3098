"""The fleet: every model at a glance."""

from dashboards import parts
from dashboards.grafana import Json, Panel, Query, Row, Variable, dashboard
from dashboards.queries import highest, rate, total
from yaie_api import metrics as m

BY = ("namespace", "model")
NAMESPACES = Variable("namespace", m.ROUTER_REQUESTS)
MODELS = Variable("model", m.ROUTER_ENDPOINTS, '{namespace=~"$namespace"}')


def fleet() -> Json:
    return dashboard(
        "yaie-fleet",
        "yaie / fleet",
        "All models: traffic, failures, latency and room.",
        [NAMESPACES, MODELS],
        [
            Row(
                "Now",
                [
                    parts.stat(
                        "Models", "With a router.", f"count({highest(m.ROUTER_ENDPOINTS, *BY)})"
                    ),
                    parts.stat("Requests", "A second.", rate(m.ROUTER_REQUESTS), "reqps"),
                    parts.stat(
                        "Failed",
                        "Share of answers with a 5xx status.",
                        parts.failed(),
                        "percentunit",
                    ),
                    parts.stat(
                        "Tokens", "Generated in a second.", rate(m.ENGINE_GENERATED_TOKENS), "ops"
                    ),
                    parts.stat("Running", "Generations in steps.", total(m.ENGINE_RUNNING)),
                    parts.stat("Waiting", "Generations in queues.", total(m.ENGINE_WAITING)),
                ],
                columns=6,
            ),
            Row("Traffic", [parts.requests(*BY), parts.failures(*BY), parts.tokens(*BY)]),
            Row(
                "Latency",
                [
                    parts.worst(m.ENGINE_TTFT, "Time to first token, p99", "At the engines.", *BY),
                    parts.worst(m.ENGINE_ITL, "Time between tokens, p99", "At the engines.", *BY),
                    parts.worst(
                        m.ENGINE_QUEUE, "Time in the queue, p99", "Before the first step.", *BY
                    ),
                ],
            ),
            Row(
                "Room",
                [parts.load(*BY), parts.kv_cache(*BY), parts.replicas(*BY), endpoints()],
                columns=2,
            ),
        ],
    )


def endpoints() -> Panel:
    return Panel(
        "Engines that routers use",
        "As the router that sees most of them sees them.",
        "short",
        [Query(highest(m.ROUTER_ENDPOINTS, *BY), "{{namespace}} {{model}}")],
    )
