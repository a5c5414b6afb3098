"""The router's HTTP handler: it routes requests, turns errors into answers, and logs each request.

It runs on aiohttp's low-level server, without a framework or middleware: uvicorn with h11 cost a
third more for each request, and httptools, which cost a fifth less, has limits that are unsafe at
an edge.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

from aiohttp import web

from yaie_api import __version__, logs, names
from yaie_api.errors import EngineError, MethodNotAllowedError, RateLimitError, YaieError
from yaie_api.http import anthropic_models
from yaie_api.http.access.body import BodyLimits
from yaie_api.http.access.gate import Gate
from yaie_api.http.access.keys import ApiKeys
from yaie_api.http.envelopes import ANTHROPIC_VERSION
from yaie_api.http.paths import no_such_path
from yaie_api.prefix import PrefixKeys
from yaie_api.tracing.spans import SpanSink
from yaie_router import routes
from yaie_router.balancing.admission import Admission
from yaie_router.balancing.holding import Claim, Holding
from yaie_router.config import Config
from yaie_router.discovery.endpoints import Directory
from yaie_router.discovery.objects import Endpoint, Model
from yaie_router.downstream.answers import anthropic_answer, error_answer, json_answer, own_headers
from yaie_router.downstream.bodies.body_budget import BodyBudget, BodyLease
from yaie_router.downstream.bodies.intake import (
    find_holder,
    find_model,
    head_of,
    is_read_in_part,
    model_not_found,
    most_tokens,
    parse,
    read_body,
)
from yaie_router.downstream.exchange import Exchange
from yaie_router.downstream.model_list import entry
from yaie_router.downstream.pages import openapi_answer, page_answer
from yaie_router.downstream.request_spans import spans_of
from yaie_router.downstream.waiting_stream import WaitingStream
from yaie_router.health.monitor import Monitor
from yaie_router.metrics import Metrics
from yaie_router.prefixes.placer import Placer
from yaie_router.tenants.tenants import Ask, Tenants, Visit
from yaie_router.upstream.call import Call
from yaie_router.upstream.delivery.relayed import end_begun
from yaie_router.upstream.headers import add_headers, request_id, time_limit_s
from yaie_router.upstream.proxy import Proxy
from yaie_router.upstream.trail import Trail

log = logging.getLogger(__name__)

Handler = Callable[[web.BaseRequest, Exchange], Awaitable[web.StreamResponse]]


class App:
    """Answers every request of the router that its `gate` lets in. `draining`: it is not ready."""

    def __init__(
        self,
        config: Config,
        directory: Directory,
        admission: Admission,
        proxy: Proxy,
        metrics: Metrics,
        *,
        holding: Holding,
        monitor: Monitor,
        tenants: Tenants,
        placer: Placer,
        spans: SpanSink | None = None,
    ) -> None:
        self._config = config
        self._body_limits = BodyLimits(config.max_body_bytes, config.body_timeout_s)
        self._budget = BodyBudget(config.max_buffered_bytes, config.max_unfinished_bodies)
        self._directory = directory
        self._admission = admission
        self._proxy = proxy
        self._metrics = metrics
        self._holding = holding
        self._monitor = monitor
        self._tenants = tenants
        self._placer = placer
        self._spans = spans
        self.draining = False
        self.gate = Gate(config.api_keys, config.cors)
        if config.api_key_dir is not None:
            self.gate.accept_only(ApiKeys())  # until they are read
        self._routes: dict[str, dict[str, Handler]] = {
            **{path: {"POST": self._forward} for path in routes.FORWARDED},
            routes.STORED: {"GET": self._stored, "DELETE": self._stored},
            routes.CANCEL: {"POST": self._stored},
            routes.INPUT_ITEMS: {"GET": self._stored},
            routes.MODELS: {"GET": self._list_models},
            routes.ONE_MODEL: {"GET": self._one_model},
            routes.HEALTH: {"GET": self._ready},
            names.PATH_LIVE: {"GET": self._live},
            names.PATH_READY: {"GET": self._ready},
            routes.VERSION: {"GET": self._version},
            **{path: {"GET": self._page, "HEAD": self._page} for path in routes.PAGES},
            routes.OPENAPI: {"GET": self._describe, "HEAD": self._describe},
        }

    def exposition(self) -> bytes:
        """The page of metrics."""
        return self._metrics.render(
            self._directory.all(),
            self._admission.in_flight_by_model,
            self._holding.pending,
            ejected=self._monitor.ejected,
            queued=self._tenants.waiting,
            prefix_keys=self._placer.num_keys,
        )

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request: the server's only handler."""
        started_s = time.perf_counter()
        trail = Trail.begin(request, self._spans)
        exchange = Exchange(request_id(request.headers), head_of(request), trail)
        logs.request_id.set(exchange.request_id)
        logs.trace_id.set(trail.trace_id)
        try:
            response = await self._answer(request, exchange)
            exchange.status = response.status
            response = await _in_begun(exchange, response)
        finally:
            ended_s = time.perf_counter()
            self._record(exchange, ended_s - started_s)
            self._trace(exchange, request.method, started_s, ended_s)
        if not response.prepared:
            add_headers(response.headers, self._answer_headers(exchange))
        # An answer before the whole body is the connection's last, and so is one that says so: a
        # client that had not been told would send its next request into the closing.
        if response.headers.get("Connection") == "close" or not request.content.is_eof():
            response.force_close()
        return response

    def _answer_headers(self, exchange: Exchange) -> dict[str, str]:
        """What every answer says. While the router drains, its clients are to connect anew."""
        leaving = {"Connection": "close"} if self.draining else {}
        return {**self.gate.answer_headers(exchange.head), **exchange.limits, **leaving}

    async def _answer(self, request: web.BaseRequest, exchange: Exchange) -> web.StreamResponse:
        try:
            if (allowed := self.gate.preflight(exchange.head)) is not None:
                exchange.route = "preflight"
                return web.Response(status=204, headers=own_headers(exchange.request_id) | allowed)
            return await self._dispatch(request, exchange)(request, exchange)
        except YaieError as error:
            if isinstance(error, RateLimitError):
                self._metrics.rate_limited.labels(exchange.tenant).inc()
            retried = exchange.call is not None and exchange.call.attempts > 1
            return error_answer(
                error, exchange.request_id, path=exchange.head.path, retried=retried
            )
        except (asyncio.CancelledError, ConnectionError):
            raise  # the client left: nobody is there to answer
        except Exception:
            log.exception("request failed inside the router")
            return error_answer(
                EngineError("The router failed on this request.", code="router_error"),
                exchange.request_id,
                path=exchange.head.path,
            )

    def _dispatch(self, request: web.BaseRequest, exchange: Exchange) -> Handler:
        exchange.tenant = self.gate.check(exchange.head)
        path = exchange.head.path
        route = routes.route_of(path)
        methods = self._routes.get(route)
        if methods is None:
            raise no_such_path(route, self._routes)
        exchange.route = route
        if request.method not in methods:
            if not routes.may_exist(route, path):
                raise no_such_path(path, self._routes)
            raise MethodNotAllowedError(f"Use {' or '.join(methods)} on this path.")
        return methods[request.method]

    async def _forward(self, request: web.BaseRequest, exchange: Exchange) -> web.StreamResponse:
        with self._budget.begin() as lease:
            call, most = await self._call_by_model(request, exchange, lease)
            ask = Ask(exchange.tenant, call.model, len(call.body), most)
            with self._tenants.admitted(ask) as visit:
                exchange.limits = visit.headers
                call.answer_headers = self._answer_headers(exchange)
                return await self._send(request, exchange, call, visit)

    async def _call_by_model(
        self, request: web.BaseRequest, exchange: Exchange, lease: BodyLease
    ) -> tuple[Call, int | None]:
        """Read a request. Returns it, and the most tokens that its answer may have, if known."""
        raw = await read_body(request, self._body_limits, lease)
        arrived_s = time.perf_counter()
        body = await parse(raw)
        path = exchange.head.path
        model = find_model(self._directory, body)
        call = Call(
            method="POST",
            path=path,
            headers=request.headers,
            body=raw,
            model=model,
            keys=self._keys(path, body, model, exchange.tenant, size=len(raw)),
            holder=self._earlier_holder(path, body, model),
            request_id=exchange.request_id,
            arrived_s=arrived_s,
            tenant=exchange.tenant,
            streams=body.get("stream") is True,
            time_limit_s=time_limit_s(request.headers),
            let_go=lease.release,
            trail=exchange.trail,
        )
        return call, most_tokens(body) if path in routes.GENERATING else 0

    async def _stored(self, request: web.BaseRequest, exchange: Exchange) -> web.StreamResponse:
        """Forward a request about a stored response to the engine that has it."""
        with self._budget.begin() as lease:
            call = await self._call_by_response(request, exchange, lease)
            return await self._send(request, exchange, call)

    async def _call_by_response(
        self, request: web.BaseRequest, exchange: Exchange, lease: BodyLease
    ) -> Call:
        raw = await read_body(request, self._body_limits, lease)
        arrived_s = time.perf_counter()
        path = exchange.head.path
        holder = find_holder(self._directory, routes.response_id_in(path))
        query = request.rel_url.raw_query_string
        return Call(
            method=request.method,
            path=f"{path}?{query}" if query else path,
            headers=request.headers,
            body=raw,
            model=holder.model,
            keys=None,
            holder=holder.endpoint,
            request_id=exchange.request_id,
            arrived_s=arrived_s,
            tenant=exchange.tenant,
            answer_headers=self._answer_headers(exchange),
            let_go=lease.release,
            trail=exchange.trail,
        )

    async def _send(
        self, request: web.BaseRequest, exchange: Exchange, call: Call, visit: Visit | None = None
    ) -> web.StreamResponse:
        exchange.call, exchange.model = call, call.model.name
        try:
            with self._admission.admitted(call.model.name, self._config.max_in_flight):
                if call.holder is None and self._holding.holds(call.model):
                    await self._hold(request, call, visit)
                if visit is None:
                    return await self._proxy.forward(request, call)
                return await self._take_turn(request, call, visit)
        finally:
            self._holding.left(call.model.name)

    async def _hold(self, request: web.BaseRequest, call: Call, visit: Visit | None) -> None:
        claim = Claim(patience_s=call.left_s)
        if visit is not None:
            place = visit.place
            claim = Claim(place.tenant, place.weight, place.cost, call.left_s)
        tells = call.streams and call.path in routes.GENERATING
        stream = WaitingStream(request, call) if tells else None
        try:
            call.held_s = await self._holding.place(
                call.model, claim, stream.tell if stream else None
            )
        except YaieError:
            if visit is not None:
                visit.refused()
            raise

    async def _take_turn(
        self, request: web.BaseRequest, call: Call, visit: Visit
    ) -> web.StreamResponse:
        came_s = time.perf_counter()
        visit.place.patience_s = call.left_s
        async with visit.seated():
            call.held_s += time.perf_counter() - came_s
            try:
                response = await self._proxy.forward(request, call)
            finally:  # a client that leaves has had what it was sent
                self._count(call, visit)
            if call.usage is None and response.status >= HTTPStatus.BAD_REQUEST:
                visit.refused()
            return response

    def _count(self, call: Call, visit: Visit) -> None:
        if (usage := call.usage) is not None:
            counted = (usage.prompt_tokens, usage.completion_tokens)
            visit.counted(*counted)
        elif call.relayed_tokens:
            counted = (visit.left_after(call.relayed_tokens), call.relayed_tokens)
        else:
            return
        self._metrics.counted(call.tenant, call.model.name, *counted)

    def _keys(
        self, path: str, body: dict[str, Any], model: Model, tenant: str, *, size: int
    ) -> PrefixKeys | None:
        if path not in routes.GENERATING or model.policy != "PrefixAffinity":
            return None
        beginning_of = size if is_read_in_part(size) else 0
        return self._placer.keys(body, model, tenant, beginning_of=beginning_of)

    def _earlier_holder(self, path: str, body: dict[str, Any], model: Model) -> Endpoint | None:
        """Return the model's engine that has the response that the request continues."""
        earlier = body.get("previous_response_id") if path in routes.CONTINUING else None
        holder = self._directory.holder(earlier) if isinstance(earlier, str) else None
        return holder.endpoint if holder and holder.model.name == model.name else None

    async def _list_models(
        self, request: web.BaseRequest, exchange: Exchange
    ) -> web.StreamResponse:
        find, names = self._directory.find, self._directory.served_names()
        entries = [entry(name, model) for name in names if (model := find(name)) is not None]
        if ANTHROPIC_VERSION in request.headers:
            page = anthropic_models.page(entries, request.query)
            return anthropic_answer(page, exchange.request_id)
        return json_answer({"object": "list", "data": entries}, exchange.request_id)

    async def _one_model(self, request: web.BaseRequest, exchange: Exchange) -> web.StreamResponse:
        name = exchange.head.path.removeprefix(routes.MODELS + "/")
        model = self._directory.find(name)
        if model is None:
            raise model_not_found(self._directory, name)
        found = entry(name, model)
        if ANTHROPIC_VERSION in request.headers:
            return anthropic_answer(anthropic_models.model(found), exchange.request_id)
        return json_answer(found, exchange.request_id)

    async def _live(self, _: web.BaseRequest, exchange: Exchange) -> web.StreamResponse:
        exchange.route = "probe"
        return json_answer({"status": "ok"}, exchange.request_id)

    async def _ready(self, _: web.BaseRequest, exchange: Exchange) -> web.StreamResponse:
        exchange.route = "probe"
        if self.draining:
            return json_answer({"status": "draining"}, exchange.request_id, 503)
        if not self._directory.is_listed:
            return json_answer(
                {"status": "waiting for the first list of models and endpoints"},
                exchange.request_id,
                503,
            )
        return json_answer({"status": "ok"}, exchange.request_id)

    async def _version(self, _: web.BaseRequest, exchange: Exchange) -> web.StreamResponse:
        exchange.route = "probe"
        return json_answer({"version": __version__}, exchange.request_id)

    async def _page(self, request: web.BaseRequest, exchange: Exchange) -> web.StreamResponse:
        return page_answer(exchange.head.path, request.headers, exchange.request_id)

    async def _describe(self, _: web.BaseRequest, exchange: Exchange) -> web.StreamResponse:
        return openapi_answer(exchange.request_id)

    def _record(self, exchange: Exchange, seconds: float) -> None:
        self._metrics.requests_of[exchange.model, exchange.route, exchange.status].inc()
        level = logging.DEBUG if exchange.route == "probe" else logging.INFO
        if not log.isEnabledFor(level):
            return
        log.log(
            level,
            "request",
            extra=logs.fields(**exchange.told(), seconds=round(seconds, 4)),
        )

    def _trace(self, exchange: Exchange, method: str, began_s: float, ended_s: float) -> None:
        trace = exchange.trail.trace
        if self._spans is None or trace is None or not trace.context.is_sampled:
            return
        if exchange.route == "probe":
            return
        for span in spans_of(
            trace,
            exchange.call,
            method=method,
            route=exchange.route,
            status=exchange.status,
            request_id=exchange.request_id,
            began_s=began_s,
            ended_s=ended_s,
        ):
            self._spans.take(span)


async def _in_begun(exchange: Exchange, response: web.StreamResponse) -> web.StreamResponse:
    """Say what the request got in its stream, where that has begun while it waited."""
    begun = exchange.call.begun if exchange.call else None
    if begun is None or response is begun:
        return response
    await end_begun(begun, response, exchange.head.path)
    return begun
