"""What a request met on its way: its trace, and the attempts to have it answered."""

import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from aiohttp import web
from multidict import CIMultiDict

from yaie_api.tracing import w3c
from yaie_api.tracing.spans import SpanSink, Trace, begin
from yaie_api.tracing.w3c import TraceContext
from yaie_router.discovery.objects import Endpoint
from yaie_router.upstream.attempt import AttemptError


@dataclass
class Attempt:
    """One endpoint that was asked. Times of `time.perf_counter`. `cause`: why it failed, or ""."""

    endpoint: Endpoint
    outcome: str
    context: TraceContext
    began_s: float
    first_s: float | None = None
    ended_s: float = 0.0
    status: int = 0
    cause: str = ""


@dataclass(eq=False)
class Trail:
    """A request's trace, None if it has none, and its attempts, if the trace is sampled.

    With `attempt(…)` it is a context manager, around what one attempt does.
    """

    trace: Trace | None = None
    attempts: list[Attempt] = field(default_factory=list)
    is_kept: bool = False

    @classmethod
    def begin(cls, request: web.BaseRequest, sink: SpanSink | None) -> "Trail":
        """Join the client's trace, or begin one if traces are made here."""
        headers = request.headers
        parents = headers.getall(w3c.TRACEPARENT, ())
        if sink is None and not parents:
            return UNTRACED
        name = f"{request.method} {request.path}"
        trace = begin(name, parents, headers.getall(w3c.TRACESTATE, ()), sink)
        kept = sink is not None and trace is not None and trace.context.is_sampled
        return cls(trace, is_kept=kept)

    @property
    def trace_id(self) -> str:
        return self.trace.context.trace_id if self.trace else ""

    def attempt(self, endpoint: Endpoint, outcome: str) -> Self:
        """Note that the endpoint is asked, for the reason `outcome`."""
        if self.is_kept and self.trace:
            context = self.trace.context.child()
            self.attempts.append(Attempt(endpoint, outcome, context, time.perf_counter()))
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self.attempts:
            return
        last = self.attempts[-1]
        last.ended_s = time.perf_counter()
        if isinstance(error, AttemptError):
            last.cause = error.cause
            last.status = error.refusal.status if error.refusal else 0
        elif error is not None:
            last.cause = "cancelled"

    def answered(self, status: int) -> None:
        """Note that the attempt has an answer, and with it the client."""
        if self.attempts:
            self.attempts[-1].status = status
            self.attempts[-1].first_s = time.perf_counter()

    def broke(self, cause: str) -> None:
        """Note that the answer did not come to its end."""
        if self.attempts:
            self.attempts[-1].cause = cause

    def put_in(self, headers: CIMultiDict[str]) -> None:
        """Write the trace into the headers of an attempt."""
        if self.trace is None or self.trace.is_passed_on:
            return
        context = self.attempts[-1].context if self.attempts else self.trace.context
        headers[w3c.TRACEPARENT] = context.header
        headers.popall(w3c.TRACESTATE, None)
        if context.state:
            headers[w3c.TRACESTATE] = context.state


UNTRACED = Trail()
"""Of requests without a trace: nothing is noted."""
