"""The spans of one request to an engine: the server's own, and below it what the prompts took.

POST /v1/chat/completions ─┬─ queue    from the submission to the first step
                           ├─ prefill  to the first token
                           └─ decode   to the last one
"""

from collections.abc import Iterator

from yaie.server.figures import Figures, Stages
from yaie_api.tracing.spans import (
    Span,
    Trace,
    Value,
    WallClock,
    server_span,
    stage_span,
    usage_attributes,
)


def spans_of(
    trace: Trace,
    figures: Figures,
    *,
    method: str,
    route: str,
    status: int,
    request_id: str,
    began_s: float,
    ended_s: float,
) -> Iterator[Span]:
    """Yield the spans of a request that has ended. Times of the monotonic clock, in seconds."""
    clock = WallClock.at(began_s, ended_s)
    attributes = usage_attributes(figures.usage) | _gen_ai(figures)
    if figures.ttft_s is not None:
        attributes["gen_ai.latency.time_to_first_token"] = figures.ttft_s
        attributes["gen_ai.latency.e2e"] = ended_s - began_s
    yield server_span(
        trace,
        clock,
        method=method,
        route=route,
        status=status,
        request_id=request_id,
        began_s=began_s,
        ended_s=ended_s,
        attributes=attributes,
    )
    for stages in figures.stages:
        yield from _stages(trace, stages, clock)


def _gen_ai(figures: Figures) -> dict[str, Value]:
    told: dict[str, Value] = {}
    if figures.model:
        told |= {"gen_ai.request.model": figures.model, "gen_ai.response.model": figures.model}
    if reasons := [reason for one in figures.stages for reason in one.finish_reasons]:
        told["gen_ai.response.finish_reasons"] = reasons
    if figures.stages:
        # vLLM's names; of several prompts, the first one's times.
        first = figures.stages[0]
        times = {"queue": first.queue_s, "prefill": first.prefill_s, "decode": first.decode_s}
        names = {"queue": "queue", "prefill": "model_prefill", "decode": "model_decode"}
        told |= {
            f"gen_ai.latency.time_in_{names[stage]}": seconds
            for stage, seconds in times.items()
            if seconds is not None
        }
    return told


def _stages(trace: Trace, stages: Stages, clock: WallClock) -> Iterator[Span]:
    at_s = stages.submitted_s
    parts = {"queue": stages.queue_s, "prefill": stages.prefill_s, "decode": stages.decode_s}
    for name, seconds in parts.items():
        if seconds is None:
            return
        yield stage_span(trace, clock, name, began_s=at_s, seconds=seconds)
        at_s += seconds
