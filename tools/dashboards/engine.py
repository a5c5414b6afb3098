"""One engine: steps, pages, queues and the HTTP process."""

from dashboards import parts
from dashboards.grafana import Json, Panel, Query, Row, Variable, dashboard
from dashboards.queries import OF_POD, increase, rate, ratio, total
from yaie_api import metrics as m

VARIABLES = (
    Variable("namespace", m.ENGINE_RUNNING),
    Variable("model", m.ENGINE_RUNNING, '{namespace=~"$namespace"}'),
    Variable("pod", m.ENGINE_RUNNING, '{namespace=~"$namespace", model=~"$model"}'),
)


def engine() -> Json:
    return dashboard(
        "yaie-engine",
        "yaie / engine",
        "Inside engines: steps, KV pages, queues, and their HTTP processes.",
        VARIABLES,
        [
            Row("Load", [parts.load("pod"), parts.generations("pod"), parts.tokens("pod")]),
            Row("Steps", [steps(), step_time(), step_budget(), past_target(), compilations()]),
            Row(
                "KV cache",
                [pages(), parts.kv_cache("pod"), parts.prefix_hits("pod"), preemptions(), host()],
            ),
            Row(
                "Latency",
                [
                    parts.worst(m.ENGINE_TTFT, "Time to first token, p99", "", "pod"),
                    parts.worst(m.ENGINE_ITL, "Time between tokens, p99", "", "pod"),
                    parts.worst(m.ENGINE_QUEUE, "Time in the queue, p99", "", "pod"),
                ],
            ),
            Row("HTTP and process", [http(), unknown_fields(), restarts(), versions()], columns=4),
        ],
    )


def steps() -> Panel:
    return Panel(
        "Steps", "Of the engine loop.", "ops", [Query(rate(m.ENGINE_STEPS, "pod"), "{{pod}}")]
    )


def step_time() -> Panel:
    spent = rate(m.ENGINE_STEP_SECONDS, "pod")
    return Panel(
        "Mean step",
        "Time spent in steps, divided by their number.",
        "s",
        [Query(ratio(spent, rate(m.ENGINE_STEPS, "pod")), "{{pod}}")],
    )


def step_budget() -> Panel:
    return Panel(
        "Step budget",
        "Tokens that the next step may hold.",
        "short",
        [Query(total(m.ENGINE_STEP_BUDGET, "pod"), "{{pod}}")],
    )


def past_target() -> Panel:
    past = rate(m.ENGINE_STEPS_PAST_TARGET, "pod")
    return Panel(
        "Steps past the time target",
        "Share of steps made longer, so that prompts are computed as fast as they come: another "
        "engine is due.",
        "percentunit",
        [Query(ratio(past, rate(m.ENGINE_STEPS, "pod")), "{{pod}}")],
        most=1,
    )


def compilations() -> Panel:
    return Panel(
        "Late compilations",
        "Kernels compiled while requests waited.",
        "short",
        [Query(increase(m.ENGINE_LATE_COMPILATIONS, "pod"), "{{pod}}")],
    )


def pages() -> Panel:
    every = (
        (m.ENGINE_KV_PAGES, "all"),
        (m.ENGINE_KV_PAGES_CACHED, "cached"),
        (m.ENGINE_KV_PAGES_FREE, "free"),
    )
    return Panel(
        "KV pages",
        "cached: held by the prefix cache alone. The rest is held by live generations.",
        "short",
        [Query(total(metric, where=OF_POD), name) for metric, name in every],
    )


def preemptions() -> Panel:
    return Panel(
        "Preemptions",
        "Generations put back for want of KV pages, and moved to host memory and back.",
        "ops",
        [
            Query(rate(m.ENGINE_PREEMPTIONS, "pod"), "preempted {{pod}}"),
            Query(rate(m.ENGINE_SWAPS_OUT, "pod"), "out {{pod}}"),
            Query(rate(m.ENGINE_SWAPS_IN, "pod"), "in {{pod}}"),
        ],
    )


def host() -> Panel:
    return Panel(
        "KV pages in host memory",
        "Of preempted generations.",
        "short",
        [
            Query(total(m.ENGINE_HOST_PAGES_USED, "pod"), "used {{pod}}"),
            Query(total(m.ENGINE_HOST_PAGES, "pod"), "all {{pod}}"),
        ],
    )


def http() -> Panel:
    return Panel(
        "HTTP answers",
        "By route and status.",
        "reqps",
        [
            Query(
                rate(m.ENGINE_HTTP_REQUESTS, "route", "status", where=OF_POD),
                "{{route}} {{status}}",
            )
        ],
    )


def unknown_fields() -> Panel:
    return Panel(
        "Unknown fields",
        "Request fields that were ignored.",
        "ops",
        [Query(rate(m.ENGINE_UNKNOWN_FIELDS, "pod"), "{{pod}}")],
    )


def restarts() -> Panel:
    return Panel(
        "Restarts",
        "Engine processes started after the first one, inside living pods.",
        "short",
        [Query(increase(m.ENGINE_RESTARTS, "pod"), "{{pod}}")],
    )


def versions() -> Panel:
    return Panel(
        "Versions",
        "Engines by version.",
        "short",
        [Query(total(m.ENGINE_BUILD_INFO, "version", where=OF_POD), "{{version}}")],
    )
