"""The ASGI middleware around the application: request ids, keys, limits, errors, the access log.

Every response passes here, so each has its request id, and every error has the same envelope.
Access is denied by default, by the rule of `yaie_api.http.access.gate`. Paths are compared as the
application's router will see them.
"""

import logging
import time
from typing import Final

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from yaie.server import figures
from yaie.server.metrics import ServerMetrics
from yaie.server.options import Limits
from yaie.server.request.http import STATUS_CLIENT_LEFT
from yaie.server.web.exchange import Exchange
from yaie.server.web.request_spans import spans_of
from yaie_api import names
from yaie_api.errors import EngineError, YaieError
from yaie_api.http.access.gate import OPEN_PATHS, Gate
from yaie_api.logs import fields, request_id, trace_id
from yaie_api.tracing.spans import SpanSink

log = logging.getLogger("yaie.access")

QUIET_PATHS: Final = OPEN_PATHS | {names.PATH_METRICS, names.PATH_PREFIXES}
"""Not logged with status 200 or 503: probes and scrapes come every few seconds."""


class Edge:
    """Wraps `app`. `gate`: says which requests may be looked at; None: all. `spans`: where the
    spans of requests go; None: none are made.
    """

    def __init__(
        self,
        app: ASGIApp,
        metrics: ServerMetrics,
        *,
        gate: Gate | None = None,
        limits: Limits | None = None,
        spans: SpanSink | None = None,
    ) -> None:
        self._app = app
        self._gate = gate or Gate()
        self._metrics = metrics
        self._limits = limits or Limits()
        self._spans = spans

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = Exchange(scope, receive, send, self._limits)
        token = request_id.set(exchange.id)
        taken = figures.current.set(exchange.figures)
        trace = exchange.begin_trace(self._spans)
        traced = trace_id.set(trace.context.trace_id if trace else "")
        try:
            await self._serve(exchange)
        finally:
            self._record(exchange)
            trace_id.reset(traced)
            figures.current.reset(taken)
            request_id.reset(token)

    async def _serve(self, exchange: Exchange) -> None:
        try:
            exchange.more_headers = self._gate.answer_headers(exchange.head)
            if (allowed := self._gate.preflight(exchange.head)) is not None:
                await Response(None, 204, allowed)(exchange.scope, exchange.receive, exchange.send)
                return
            self._gate.check(exchange.head)
            exchange.check_declared_size()
            exchange.check_encoding()
            await self._app(exchange.scope, exchange.receive, exchange.send)
        except YaieError as error:
            await exchange.fail(error)
        except Exception:
            log.exception("request failed")
            await exchange.fail(EngineError("The request failed. Its id is in the headers."))

    def _record(self, exchange: Exchange) -> None:
        status = exchange.status or STATUS_CLIENT_LEFT
        route = exchange.route
        self._metrics.answered(route, status)
        if exchange.path in QUIET_PATHS and status in (200, 503):
            return
        ended_s = time.monotonic()
        log.info(
            "request",
            extra=fields(
                method=exchange.scope["method"],
                path=route,
                status=status,
                **exchange.figures.as_fields(),
                seconds=round(ended_s - exchange.started_s, 4),
            ),
        )
        if self._spans is None or exchange.trace is None or not exchange.trace.context.is_sampled:
            return
        for span in spans_of(
            exchange.trace,
            exchange.figures,
            method=exchange.scope["method"],
            route=route,
            status=status,
            request_id=exchange.id,
            began_s=exchange.started_s,
            ended_s=ended_s,
        ):
            self._spans.take(span)
