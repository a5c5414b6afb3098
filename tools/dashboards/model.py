"""One model: from the router's answers to the engines' phases."""

from dashboards import parts
from dashboards.fleet import MODELS, NAMESPACES
from dashboards.grafana import Json, Panel, Query, Row, dashboard
from dashboards.queries import highest, rate
from yaie_api import metrics as m


def model() -> Json:
    return dashboard(
        "yaie-model",
        "yaie / model",
        "One model or several: what clients see, what prompts and outputs are like, how its "
        "engines are chosen.",
        [NAMESPACES, MODELS],
        [
            Row("What clients see", [requests_by_status(), parts.failures(), first_byte()]),
            Row(
                "Phases of a generation",
                [
                    parts.quantiles(
                        m.ENGINE_TTFT, "Time to first token", "From arrival at the engine."
                    ),
                    parts.quantiles(m.ENGINE_ITL, "Time between tokens", "Of one generation."),
                    parts.quantiles(m.ENGINE_E2E, "Whole generation", "From arrival to its end."),
                    parts.quantiles(m.ENGINE_QUEUE, "Queue", "Until the first step."),
                    parts.quantiles(m.ENGINE_PREFILL, "Prompt", "First step to first token."),
                    parts.quantiles(m.ENGINE_DECODE, "Output", "First token to last token."),
                ],
            ),
            Row(
                "Work",
                [
                    parts.quantiles(
                        m.ENGINE_PROMPT_LENGTH, "Prompt length", "In tokens, cached ones included."
                    ),
                    parts.quantiles(m.ENGINE_OUTPUT_LENGTH, "Output length", "In tokens."),
                    parts.tokens(),
                    finish_reasons(),
                    parts.load(),
                    parts.prefix_hits(),
                ],
            ),
            Row("Routing", [picks(), retries(), broken_streams()]),
            Row("Engines", [parts.replicas("model"), parts.kv_cache("model"), conditions()]),
        ],
    )


def requests_by_status() -> Panel:
    return Panel(
        "Requests by status",
        "At the router. 499: the client left first. 429: the model's limit was reached.",
        "reqps",
        [Query(rate(m.ROUTER_REQUESTS, "status"), "{{status}}")],
        stacked=True,
    )


def first_byte() -> Panel:
    return parts.quantiles(
        m.ROUTER_FIRST_BYTE, "First byte", "From arrival at the router to an engine's first byte."
    )


def finish_reasons() -> Panel:
    return Panel(
        "Outputs by reason of their end",
        "stop, length, tool_calls, abort or error.",
        "ops",
        [Query(rate(m.ENGINE_GENERATIONS, "finish_reason"), "{{finish_reason}}")],
        stacked=True,
    )


def picks() -> Panel:
    return Panel(
        "Choices of an engine",
        "home: the engine that has the prefix. spilled: another one, as home was loaded or "
        "failing.",
        "ops",
        [Query(rate(m.ROUTER_PICKS, "outcome"), "{{outcome}}")],
        stacked=True,
    )


def retries() -> Panel:
    return Panel(
        "Sent again",
        "Requests that the router sent to another engine, and engines that it took out.",
        "ops",
        [
            Query(rate(m.ROUTER_RETRIES, "cause"), "{{cause}}"),
            Query(rate(m.ROUTER_EJECTIONS), "engines taken out"),
        ],
    )


def broken_streams() -> Panel:
    return Panel(
        "Broken streams",
        "Answers that an engine did not finish after their first byte.",
        "ops",
        [Query(rate(m.ROUTER_BROKEN_STREAMS), "broken")],
    )


def conditions() -> Panel:
    return Panel(
        "Conditions",
        "1: true. Of the InferenceModel, as the operator wrote them.",
        "none",
        [
            Query(
                highest(m.OPERATOR_MODEL_CONDITION, "model", "condition"), "{{model}} {{condition}}"
            )
        ],
        most=1,
    )
