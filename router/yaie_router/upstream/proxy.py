"""Forwards a request to an engine, and the bytes of its answer to the client, unparsed.

Until the first byte of an answer, the request may be sent again to another engine, within a budget.
The client's flow control reaches the engine: each write waits for the client, and reading pauses
meanwhile, so a stream holds at most a few tens of KiB here. If the client leaves, the server
cancels the handler, and the connection to the engine closes at once.
"""

import itertools
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import aiohttp
from aiohttp import web
from multidict import CIMultiDictProxy

from yaie_api.errors import EngineError, UnavailableError
from yaie_router.balancing import affinity
from yaie_router.balancing.admission import Admission
from yaie_router.balancing.affinity import Decision
from yaie_router.discovery.endpoints import Directory
from yaie_router.discovery.objects import Endpoint, Model
from yaie_router.health.outlier_detection import Health, RetryBudget
from yaie_router.metrics import Metrics
from yaie_router.upstream import headers
from yaie_router.upstream.attempt import FAILURES, AttemptError, Cause, open_answer
from yaie_router.upstream.stream import EventGate, last_words

MAX_ATTEMPTS: Final = 3
NO_ENGINE_RETRY_S: Final = 5.0


@dataclass
class Call:
    """One client request, parsed. `endpoint`, `attempts` and `tried` change with each attempt.
    `held_s`: how long it waited for a model that was scaled to zero.

    `holder`: the only engine that can answer, because it has the stored response. `answer_headers`:
    what the answer gets beside the engine's.
    """

    method: str
    path: str
    headers: CIMultiDictProxy[str]
    body: bytes
    model: Model
    key: int | None
    holder: Endpoint | None
    request_id: str
    arrived_s: float
    held_s: float = 0.0
    answer_headers: Mapping[str, str] = field(default_factory=dict)
    endpoint: str = ""
    attempts: int = 0
    tried: set[str] = field(default_factory=set)


class Proxy:
    """Chooses an engine, sends, retries and relays. Its only state is the turn of round robin."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        directory: Directory,
        *,
        admission: Admission,
        health: Health,
        budget: RetryBudget,
        metrics: Metrics,
        silence_timeout_s: float,
        forward_keys: bool = True,
    ) -> None:
        self._session = session
        self._directory = directory
        self._admission = admission
        self._health = health
        self._budget = budget
        self._metrics = metrics
        self._silence_timeout_s = silence_timeout_s
        self._forward_keys = forward_keys
        self._turn = itertools.count()

    async def forward(self, request: web.BaseRequest, call: Call) -> web.StreamResponse:
        """Answer the request from an engine.

        Raises:
            UnavailableError: no engine answers.

        """
        self._budget.deposit()
        while True:
            endpoint = self._choose(call)
            try:
                return await self._attempt(request, call, endpoint)
            except AttemptError as failure:
                call.tried.add(endpoint.name)
                if not self._may_retry(call, failure.cause):
                    return self._give_up(call, failure)
                self._metrics.retries.labels(call.model.name, failure.cause).inc()

    def _choose(self, call: Call) -> Endpoint:
        decision = Decision(call.holder, "stored") if call.holder else self._pick(call)
        if call.attempts == 0:
            seconds = time.perf_counter() - call.arrived_s - call.held_s
            self._metrics.decision.observe(seconds)
        self._metrics.picks.labels(call.model.name, decision.outcome).inc()
        return decision.endpoint

    def _pick(self, call: Call) -> Decision:
        model = self._directory.find(call.model.served) or call.model
        names = [endpoint.name for endpoint in model.endpoints]
        fresh = [name for name in names if name not in call.tried]
        unusable = self._health.ejected(fresh) | (call.tried if fresh else set())
        decision = affinity.pick(
            model.endpoints,
            key=call.key,
            loads=self._admission.loads,
            policy=model.policy,
            load_factor=model.load_factor,
            turn=next(self._turn),
            unusable=unusable,
        )
        if decision is None:
            raise UnavailableError(
                f"Model {model.served!r} has no ready engine: {model.awaiting}.",
                retry_after_s=NO_ENGINE_RETRY_S,
            )
        return decision

    def _may_retry(self, call: Call, cause: Cause) -> bool:
        """Decide whether to retry. A request whose connection was lost may have killed the engine,
        so it is sent only once more. Silence means load or a hang: a retry would double the work.
        """
        if cause == "silence" or call.attempts >= MAX_ATTEMPTS:
            return False
        lost = cause == "disconnect"
        if lost and call.attempts >= 2:
            return False
        model = self._directory.find(call.model.served) or call.model
        others = call.holder is None and any(
            endpoint.name not in call.tried for endpoint in model.endpoints
        )
        # The lost connection may have been an idle one that closed: the same engine may take it.
        return (others or lost) and self._budget.withdraw()

    def _give_up(self, call: Call, failure: AttemptError) -> web.StreamResponse:
        """Return the last engine's own refusal. If it sent none, raise UnavailableError."""
        if failure.refusal is not None:
            kept = headers.to_client(
                CIMultiDictProxy(failure.refusal.headers),
                call.request_id,
                call.endpoint,
                retried=call.attempts > 1,
            )
            kept.setdefault("retry-after", f"{NO_ENGINE_RETRY_S:.0f}")
            return web.Response(status=503, headers=kept, body=failure.refusal.body)
        if failure.cause == "silence":
            text = f"The engine of model {call.model.served!r} did not answer in time."
        else:
            text = f"No engine of model {call.model.served!r} could be reached."
        raise UnavailableError(text, retry_after_s=NO_ENGINE_RETRY_S) from failure

    async def _attempt(
        self, request: web.BaseRequest, call: Call, endpoint: Endpoint
    ) -> web.StreamResponse:
        call.attempts += 1
        call.endpoint = endpoint.name
        self._health.sent(endpoint.name)
        with self._admission.sent_to(endpoint.name):
            try:
                upstream, first = await open_answer(
                    self._session,
                    call.method,
                    endpoint.base_url + call.path,
                    call.body,
                    headers.to_engine(call.headers, call.request_id, with_keys=self._forward_keys),
                    silence_timeout_s=call.model.timeout_s or self._silence_timeout_s,
                )
            except AttemptError as failure:
                at_once = failure.cause == "connect"
                if self._health.failed(endpoint.name, at_once=at_once):
                    self._metrics.ejections.labels(call.model.name).inc()
                raise
            except BaseException:  # cancelled: it says nothing about the endpoint
                self._health.abandoned(endpoint.name)
                raise
            self._health.succeeded(endpoint.name)
            try:
                return await self._relay(request, call, upstream, first)
            finally:
                upstream.close()  # a no-op after a complete answer

    async def _relay(
        self,
        request: web.BaseRequest,
        call: Call,
        upstream: aiohttp.ClientResponse,
        first: bytes,
    ) -> web.StreamResponse:
        out = web.StreamResponse(
            status=upstream.status,
            reason=upstream.reason,
            headers=headers.to_client(
                upstream.headers, call.request_id, call.endpoint, retried=call.attempts > 1
            ),
        )
        out.headers["server"] = "yaie"
        headers.add_headers(out.headers, call.answer_headers)
        is_events = upstream.content_type == "text/event-stream"
        if is_events:
            out.headers.popall("content-length", None)  # an error event may follow
        await out.prepare(request)
        seconds = time.perf_counter() - call.arrived_s
        self._metrics.first_byte.labels(call.model.name).observe(seconds)
        gate = EventGate() if is_events else None
        data = first
        while data:
            if ready := gate.push(data) if gate else data:
                await out.write(ready)
            try:
                data = await upstream.content.readany()
            except FAILURES:
                self._health.failed(call.endpoint, at_once=False)
                self._metrics.broken_streams.labels(call.model.name).inc()
                await _break_off(request, out, path=call.path if is_events else None)
                return out
        if gate and (rest := gate.flush()):
            await out.write(rest)
        await out.write_eof()
        return out


async def _break_off(
    request: web.BaseRequest, out: web.StreamResponse, *, path: str | None
) -> None:
    """End the answer of an engine that died after its first byte: with an error event in the form
    of `path`, or by cutting the connection, so that the client sees a broken body, not a short one.
    """
    if path is not None:
        error = EngineError("The engine stopped while it was answering.", code="engine_stopped")
        await out.write(last_words(error, path))
        await out.write_eof()
    elif request.transport is not None:
        request.transport.abort()
