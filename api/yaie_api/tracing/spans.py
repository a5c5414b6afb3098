"""Spans as frozen values: servers make them when a request has ended, an exporter sends them."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

from yaie_api.http.usage_note import TokenUsage
from yaie_api.tracing.w3c import TraceContext, read

Kind = Literal["server", "client", "internal"]
Value = str | int | float | bool | Sequence[str]

OPERATIONS: Final = {
    "/v1/chat/completions": "chat",
    "/v1/messages": "chat",
    "/v1/responses": "chat",
    "/v1/completions": "text_completion",
    "/v1/embeddings": "embeddings",
}
"""`gen_ai.operation.name` by route."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that happened at one time within a span. Times in ns since 1970."""

    name: str
    at_ns: int


@dataclass(frozen=True, kw_only=True)
class Span:
    """One piece of work. `parent_id`: of the span above it, "" for none. `error`: why it failed."""

    name: str
    kind: Kind
    context: TraceContext
    parent_id: str
    began_ns: int
    ended_ns: int
    attributes: Mapping[str, Value] = field(default_factory=dict)
    events: Sequence[Event] = ()
    error: str = ""


class SpanSink(Protocol):
    """Takes spans of sampled traces. Only `close` waits, and none of its methods fails."""

    def samples(self, name: str, context: TraceContext, *, is_remote: bool) -> bool:
        """Whether to record a server's span `name`.

        `context`: the client's if `is_remote`, else a new trace.
        """

    def take(self, span: Span) -> None:
        """Export this span some time, or drop and count it."""

    def close(self) -> None:
        """Export what is left, for a bounded time."""


@dataclass(frozen=True)
class Trace:
    """The trace of one request at a server. `context`: the server's own span in it.

    `is_passed_on`: this server makes no spans, and the client's header is valid as it is.
    """

    context: TraceContext
    parent_id: str = ""
    is_passed_on: bool = False


def begin(
    name: str, parents: Sequence[str], states: Sequence[str], sink: SpanSink | None
) -> Trace | None:
    """Join the trace that a request's headers name, or begin one; None: there is nothing to do.

    Without a sink, a valid header is passed on, and one that is not valid is replaced.
    """
    if sink is None and not parents:
        return None
    given = read(parents, states)
    if sink is None:
        return Trace(given or TraceContext.new(), is_passed_on=given is not None)
    above = given or TraceContext.new()
    context = above.child().sampled(sink.samples(name, above, is_remote=given is not None))
    return Trace(context, given.span_id if given else "")


@dataclass(frozen=True)
class WallClock:
    """Times of a monotonic clock as ns since 1970. Both were read at the same moment."""

    monotonic_s: float
    wall_ns: int

    @classmethod
    def at(cls, monotonic_s: float, now_s: float) -> "WallClock":
        """`now_s`: what the monotonic clock says now."""
        return cls(monotonic_s, time.time_ns() - round((now_s - monotonic_s) * 1e9))

    def ns(self, monotonic_s: float) -> int:
        return self.wall_ns + round((monotonic_s - self.monotonic_s) * 1e9)


def server_span(
    trace: Trace,
    clock: WallClock,
    *,
    method: str,
    route: str,
    status: int,
    request_id: str,
    began_s: float,
    ended_s: float,
    attributes: Mapping[str, Value],
) -> Span:
    """Return a server's own span of one HTTP request. `attributes`: what else is known of it."""
    told = request_attributes(method, route, status) | {"gen_ai.request.id": request_id}
    return Span(
        name=f"{method} {route}",
        kind="server",
        context=trace.context,
        parent_id=trace.parent_id,
        began_ns=clock.ns(began_s),
        ended_ns=clock.ns(ended_s),
        attributes={**told, **attributes},
        error=f"HTTP status {status}" if status >= 500 else "",
    )


def stage_span(
    trace: Trace, clock: WallClock, name: str, *, began_s: float, seconds: float
) -> Span:
    """Return the span of one stage of a request, below the server's own."""
    return Span(
        name=name,
        kind="internal",
        context=trace.context.child(),
        parent_id=trace.context.span_id,
        began_ns=clock.ns(began_s),
        ended_ns=clock.ns(began_s + seconds),
    )


def request_attributes(method: str, route: str, status: int) -> dict[str, Value]:
    """Return the attributes of an HTTP server's span, by OpenTelemetry's names."""
    told: dict[str, Value] = {
        "http.request.method": method,
        "http.route": route,
        "http.response.status_code": status,
        "url.scheme": "http",
    }
    if route in OPERATIONS:
        told |= {"gen_ai.operation.name": OPERATIONS[route], "gen_ai.provider.name": "yaie"}
    return told | ({"error.type": str(status)} if status >= 500 or status == 499 else {})


def usage_attributes(usage: TokenUsage | None) -> dict[str, Value]:
    """Return the tokens by OpenTelemetry's names and by those that vLLM's users know."""
    if usage is None:
        return {}
    return {
        "gen_ai.usage.input_tokens": usage.prompt_tokens,
        "gen_ai.usage.output_tokens": usage.completion_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
        "gen_ai.usage.prompt_tokens": usage.prompt_tokens,
        "gen_ai.usage.completion_tokens": usage.completion_tokens,
    }
