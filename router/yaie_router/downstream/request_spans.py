"""The spans of one request to the router.

POST /v1/chat/completions ─┬─ hold   while its model had no engine
                           ├─ POST   pod-a: 5xx
                           └─ POST   pod-b, whose engine goes on from there
"""

from collections.abc import Iterator

from yaie_api.tracing.spans import (
    Event,
    Span,
    Trace,
    Value,
    WallClock,
    server_span,
    stage_span,
    usage_attributes,
)
from yaie_router.upstream.call import Call
from yaie_router.upstream.trail import Attempt


def spans_of(
    trace: Trace,
    call: Call | None,
    *,
    method: str,
    route: str,
    status: int,
    request_id: str,
    began_s: float,
    ended_s: float,
) -> Iterator[Span]:
    """Yield the spans of a request that has ended. Times of `time.perf_counter`, in seconds."""
    clock = WallClock.at(began_s, ended_s)
    yield server_span(
        trace,
        clock,
        method=method,
        route=route,
        status=status,
        request_id=request_id,
        began_s=began_s,
        ended_s=ended_s,
        attributes=_of_call(call),
    )
    if call is None:
        return
    if call.held_s:
        yield stage_span(trace, clock, "hold", began_s=call.arrived_s, seconds=call.held_s)
    for number, one in enumerate(call.trail.attempts):
        yield Span(
            name=method,
            kind="client",
            context=one.context,
            parent_id=trace.context.span_id,
            began_ns=clock.ns(one.began_s),
            ended_ns=clock.ns(one.ended_s),
            attributes=_of_attempt(one, number, method),
            events=_events(one, clock),
            error=one.cause,
        )


def _of_call(call: Call | None) -> dict[str, Value]:
    if call is None:
        return {}
    told: dict[str, Value] = {
        "gen_ai.request.model": call.model.served,
        "yaie.attempts": call.attempts,
        "yaie.endpoint": call.endpoint,
        "yaie.held_seconds": call.held_s,
    }
    if call.attempts:
        told["yaie.outcome"] = call.outcome
    if call.first_token_s is not None:
        told["gen_ai.latency.time_to_first_token"] = call.first_token_s
    return told | usage_attributes(call.usage)


def _of_attempt(one: Attempt, number: int, method: str) -> dict[str, Value]:
    told: dict[str, Value] = {
        "http.request.method": method,
        "server.address": one.endpoint.address,
        "server.port": one.endpoint.port,
        "yaie.endpoint": one.endpoint.name,
        "yaie.outcome": one.outcome,
    }
    if number:
        told["http.request.resend_count"] = number
    if one.status:
        told["http.response.status_code"] = one.status
    if one.cause:
        told["error.type"] = one.cause
    return told


def _events(one: Attempt, clock: WallClock) -> list[Event]:
    if one.first_s is None:
        return []
    return [Event(name="first token", at_ns=clock.ns(one.first_s))]
