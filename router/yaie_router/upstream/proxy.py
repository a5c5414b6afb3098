"""Forwards a request to an engine, and the bytes of its answer to the client, unparsed.

Until the first token of an answer, the request may be sent again to another engine, within a
budget. From then on, `relay` passes its bytes on without this coroutine, which only waits for the
end. If the client leaves, the server cancels the handler, and the connection to the engine closes
at once.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, cast

from aiohttp import web
from multidict import CIMultiDictProxy

from yaie_api.errors import EngineError, UnavailableError
from yaie_api.http.usage_note import TokenUsage
from yaie_api.names import HEADER_ROUTE, HEADER_USAGE
from yaie_router.balancing import affinity
from yaie_router.balancing.admission import Admission
from yaie_router.balancing.affinity import Decision, Outcome
from yaie_router.discovery.endpoints import Directory
from yaie_router.discovery.objects import Endpoint, Model
from yaie_router.health.monitor import Monitor
from yaie_router.health.outlier_detection import Event, Failure
from yaie_router.health.retry_budget import RetryBudgets
from yaie_router.health.watchdog import Wait, WaitEndedError
from yaie_router.metrics import Metrics
from yaie_router.upstream import headers
from yaie_router.upstream.attempt import Answer, AttemptError, Request, open_answer
from yaie_router.upstream.deadlines import Deadlines
from yaie_router.upstream.failover.failover import Failover, Peers
from yaie_router.upstream.failover.resumable import Resumable, StreamBrokenError
from yaie_router.upstream.http1.connection import BrokenError
from yaie_router.upstream.http1.pool import Pool
from yaie_router.upstream.progress import events_in
from yaie_router.upstream.relay import Client, Relay
from yaie_router.upstream.relayed import Relayed
from yaie_router.upstream.retries import others_may_take
from yaie_router.upstream.stream import EventGate, last_words
from yaie_router.upstream.trail import UNTRACED, Trail

NO_ENGINE_RETRY_S: Final = 5.0
_MOST_WHOLE_BYTES: Final = 64 << 10
_NOTICED_S: Final = 0.1
"""A request that waited less goes on with its client's time limit as it came."""
_LEAST_S: Final = 0.001


@dataclass
class Call:
    """One client request, parsed. `endpoint`, `outcome`, `sent_s`, `attempts` and `tried` change
    with each attempt. `held_s`: how long it waited for a model that was scaled to zero.
    `first_token_s`: from its arrival to the first token, or the answer, of an engine. `usage`: what
    that engine says at the end that the answer took.

    `tenant`: whose API key it showed.

    `streams`: it asks for a stream of tokens. `body` is dropped when the answer
    begins, and `let_go` is called.

    `holder`: the only engine that can answer, because it has the stored response. `answer_headers`:
    what the answer gets beside the engine's. `trail`: what its spans tell.

    `relayed_tokens`: of a stream, about how many its client was sent. `resumable`: of a stream that
    another engine could continue.
    `time_limit_s`: from its arrival, as its client wishes. `begun`: the answer, if it began while
    the request waited.
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
    tenant: str = ""
    streams: bool = False
    held_s: float = 0.0
    time_limit_s: float = math.inf
    begun: Relayed | None = None
    answer_headers: Mapping[str, str] = field(default_factory=dict)
    let_go: Callable[[], None] = lambda: None
    trail: Trail = UNTRACED
    endpoint: str = ""
    outcome: Outcome = "balanced"
    first_token_s: float | None = None
    usage: TokenUsage | None = None
    relayed_tokens: int = 0
    resumable: Resumable | None = None
    sent_s: float = 0.0
    attempts: int = 0
    tried: set[str] = field(default_factory=set)

    @property
    def is_new(self) -> bool:
        """Whether its client has nothing of an engine's answer yet."""
        return self.resumable is None or self.resumable.out is None

    @property
    def left_s(self) -> float:
        """What is left of its client's time limit."""
        return self.arrived_s + self.time_limit_s - time.perf_counter()


class Proxy:
    """Chooses an engine, sends, retries and relays. Its only state is the turns of round robin."""

    def __init__(
        self,
        pool: Pool,
        directory: Directory,
        *,
        admission: Admission,
        monitor: Monitor,
        budgets: RetryBudgets,
        metrics: Metrics,
        deadlines: Deadlines,
        failover: Failover,
        forward_keys: bool = True,
    ) -> None:
        self._pool = pool
        self._directory = directory
        self._admission = admission
        self._monitor = monitor
        self._budgets = budgets
        self._metrics = metrics
        self._deadlines = deadlines
        self._failover = failover
        self._forward_keys = forward_keys
        self._turns: Counter[str] = Counter()

    async def forward(self, request: web.BaseRequest, call: Call) -> web.StreamResponse:
        """Answer the request from an engine.

        Raises:
            UnavailableError: no engine answers.

        """
        self._budgets.of(call.model.name).deposit()
        streams = call.streams and call.holder is None
        call.resumable = stream = self._failover.begin(call.path, streams=streams)
        if stream is None:
            return await self._forward(request, call)
        try:
            return await self._forward(request, call)
        except StreamBrokenError:
            return await self._go_on(request, call, stream)
        finally:
            stream.release()

    async def _forward(self, request: web.BaseRequest, call: Call) -> web.StreamResponse:
        failed_5xx = ""
        while True:
            endpoint = self._choose(call)
            try:
                with call.trail.attempt(endpoint, call.outcome):
                    return await self._attempt(request, call, endpoint)
            except AttemptError as failure:
                call.tried.add(endpoint.name)
                if failure.cause == "5xx" and failed_5xx:
                    self._monitor.tell(failed_5xx, "pardoned")  # the request is to blame
                    self._tell(call, "abandoned")
                elif failure.cause == "5xx":
                    failed_5xx = endpoint.name
                    self._tell(call, "5xx")
                if not self._may_retry(call, failure):
                    return self._give_up(call, failure)
                self._metrics.retries.labels(call.model.name, failure.cause).inc()

    def retain(self, models: set[str]) -> None:
        """Forget models that no longer exist."""
        self._budgets.retain(models)
        for name in self._turns.keys() - models:
            del self._turns[name]

    async def _go_on(
        self, request: web.BaseRequest, call: Call, stream: Resumable
    ) -> web.StreamResponse:
        """Have other engines answer what is left of a stream; if none does, end it."""

        def unusable() -> set[str]:
            names = {endpoint.name for endpoint in self._now(call.model).endpoints}
            return call.tried | self._monitor.avoided(names) | self._monitor.busy(names)

        async def attempt(endpoint: Endpoint) -> web.StreamResponse:
            words = len(stream.gate.words)
            call.body = stream.body()
            try:
                with call.trail.attempt(endpoint, "replay"):
                    return await self._attempt(request, call, endpoint)
            except AttemptError as failure:
                call.tried.add(endpoint.name)
                if failure.cause == "5xx":
                    self._tell(call, "5xx")
                raise
            except StreamBrokenError:
                if len(stream.gate.words) > words:
                    call.tried.clear()
                call.tried.add(endpoint.name)
                raise

        call.tried = {call.endpoint}
        peers = Peers(lambda: self._now(call.model), unusable, self._admission.loads)
        answered = await self._failover.go_on(stream, peers, attempt)
        if answered is not None or stream.out is None:
            return answered or web.Response(status=500)
        self._metrics.broken_streams.labels(call.model.name).inc()
        await _break_off(request, stream.out, path=call.path)
        return stream.out

    def _choose(self, call: Call) -> Endpoint:
        decision = Decision(call.holder, "stored") if call.holder else self._pick(call)
        if call.attempts == 0:
            seconds = time.perf_counter() - call.arrived_s - call.held_s
            self._metrics.decision.observe(seconds)
        call.outcome = decision.outcome
        self._metrics.picks_of[call.model.name, decision.outcome].inc()
        return decision.endpoint

    def _pick(self, call: Call) -> Decision:
        model = self._now(call.model)
        turn = self._turns[model.name]
        self._turns[model.name] += 1
        decision = affinity.pick(
            model.endpoints,
            key=call.key,
            loads=self._admission.loads,
            policy=model.policy,
            load_factor=model.load_factor,
            turn=turn,
            unusable=self._unusable(model, call),
        )
        if decision is None:
            raise UnavailableError(
                f"Model {model.served!r} has no ready engine: {model.awaiting}.",
                retry_after_s=NO_ENGINE_RETRY_S,
            )
        return decision

    def _unusable(self, model: Model, call: Call) -> set[str]:
        """Return the endpoints that this attempt leaves out: tried before, ejected or busy; of the
        busy ones none where no other is left.
        """
        if self._monitor.is_calm and not call.tried:
            return set()
        names = {endpoint.name for endpoint in model.endpoints}
        tried = call.tried if not names <= call.tried else set()
        avoided = self._monitor.avoided(names)
        if names <= avoided | tried:
            return tried
        busy = self._monitor.busy(names)
        return avoided | tried if names <= avoided | tried | busy else avoided | tried | busy

    def _now(self, model: Model) -> Model:
        return self._directory.find(model.served) or model

    def _may_retry(self, call: Call, failure: AttemptError) -> bool:
        names = {endpoint.name for endpoint in self._now(call.model).endpoints}
        has_others = call.holder is None and not names <= call.tried
        if not others_may_take(failure.cause, call.attempts, has_others=has_others):
            return False
        # What waited for an endpoint that is lost is not a second load on the others.
        return failure.cause == "lost" or self._budgets.of(call.model.name).withdraw()

    def _give_up(self, call: Call, failure: AttemptError) -> web.StreamResponse:
        """Return the last engine's own refusal. If it sent none, raise UnavailableError."""
        if failure.refusal is not None:
            kept = headers.to_client(
                CIMultiDictProxy(failure.refusal.headers),
                call.request_id,
                call.endpoint,
                retried=call.attempts > 1,
            )
            if failure.refusal.status in (429, 503):
                kept.setdefault("retry-after", f"{NO_ENGINE_RETRY_S:.0f}")
            return web.Response(
                status=failure.refusal.status, headers=kept, body=failure.refusal.body
            )
        served = call.model.served
        text = {
            "timeout": f"The engine of model {served!r} did not answer in time.",
            "exhausted": "The router has no free connections.",
        }.get(failure.cause, f"No engine of model {served!r} could be reached.")
        raise UnavailableError(text, retry_after_s=NO_ENGINE_RETRY_S) from failure

    async def _attempt(
        self, request: web.BaseRequest, call: Call, endpoint: Endpoint
    ) -> web.StreamResponse:
        call.attempts += 1
        call.endpoint = endpoint.name
        call.sent_s = self._monitor.sent(endpoint.name)
        wait = self._deadlines.first_wait(
            call.model,
            endpoint,
            streams=call.streams,
            size=len(call.body),
            is_bound=call.holder is not None,
        )
        with self._admission.sent_to(endpoint.name):
            try:
                answer = await self._open(call, wait)
            except AttemptError as failure:
                self._blame(call, failure)
                raise
            except BaseException:  # cancelled: it says nothing about the endpoint
                self._tell(call, "abandoned")
                raise
            body, call.body = call.body, b""  # it is not sent again, unless it is held
            call.let_go()
            try:
                if call.resumable and not call.resumable.hold(body, answer, self._failover.bodies):
                    call.resumable = None
                del body
                return await self._relay(request, call, answer, wait)
            finally:
                self._pool.give_back(answer.connection)  # it ends unless the answer was whole
                self._tell(call, "abandoned")  # if nothing else was told

    def _blame(self, call: Call, failure: AttemptError) -> None:
        match failure.cause:
            case "lost" | "exhausted":
                self._tell(call, "abandoned")
            case "5xx":
                return  # told by `forward`, which sees whether another engine fails, too
            case cause:
                self._tell(call, cause)

    def _tell(self, call: Call, event: Event) -> None:
        self._monitor.tell(call.endpoint, event, call.sent_s)

    async def _open(self, call: Call, wait: Wait) -> Answer:
        """Wait for the first token, or for the answer of a request that does not stream."""
        sent = headers.to_engine(
            call.headers, call.request_id, with_keys=self._forward_keys, tenant=call.tenant
        )
        if call.held_s > _NOTICED_S or call.attempts > 1:
            headers.shorten(sent, call.left_s if call.is_new else max(call.left_s, _LEAST_S))
        call.trail.put_in(sent)
        if call.resumable is not None:
            call.resumable.put_in(sent)
        try:
            async with self._monitor.watchdog.waiting(wait):
                answer = await open_answer(
                    self._pool,
                    wait.endpoint,
                    Request(call.method, call.path, sent, call.body),
                    hold_s=self._deadlines.hold_s,
                )
        except WaitEndedError as ended:
            raise AttemptError(ended.end) from None
        if answer.has_tokens:
            self._monitor.watchdog.progressed(wait)
            self._tell(call, "answered")
        return answer

    async def _relay(
        self, request: web.BaseRequest, call: Call, answer: Answer, first: Wait
    ) -> web.StreamResponse:
        call.trail.answered(answer.head.status)
        if call.begun is not None and not answer.head.is_events:
            return await _whole(answer)
        stream = call.resumable
        out = (stream and stream.out) or call.begun or self._head(call, answer)
        is_events = answer.head.is_events
        gate = (stream.gate if stream is not None else EventGate()) if is_events else None
        call.usage = TokenUsage.read(answer.head.headers.get(HEADER_USAGE, ""))
        opening = gate.push(answer.first) if gate is not None else answer.first
        is_whole = answer.connection.is_whole and not (gate is not None and gate.is_cut_off)
        if stream is not None:
            stream.out = out
        if not is_whole:
            await out.begin(request, opening)
        if call.first_token_s is None:
            call.first_token_s = time.perf_counter() - call.arrived_s
            self._metrics.first_byte_of[(call.model.name,)].observe(call.first_token_s)
        call.relayed_tokens += events_in(opening) if is_events else 0
        try:
            if is_whole:
                await out.whole(request, opening + gate.flush() if gate is not None else opening)
            else:
                await self._splice(request, call, answer, out=out, gate=gate, first=first)
        except (WaitEndedError, BrokenError) as error:
            call.trail.broke(self._blame_break(call, error))
            if stream is not None and stream.can_go_on:
                raise StreamBrokenError from error
            self._metrics.broken_streams.labels(call.model.name).inc()
            await _break_off(request, out, path=call.path if is_events else None)
            return out
        finally:
            if gate is not None:
                call.usage = gate.usage or call.usage
        out.is_ended = True
        if answer.head.status < 500:
            self._tell(call, "finished")
        return out

    async def _splice(
        self,
        request: web.BaseRequest,
        call: Call,
        answer: Answer,
        *,
        out: Relayed,
        gate: EventGate | None,
        first: Wait,
    ) -> None:
        """Write what comes of an answer from now on.

        Raises:
            BrokenError: the engine did not finish it.
            WaitEndedError: it took too long, or is lost.

        """
        watchdog, stream = self._monitor.watchdog, call.resumable
        wait = self._deadlines.next_wait(
            first, is_events=answer.head.is_events, has_tokens=answer.has_tokens
        )
        wait.is_resumable = stream is not None and stream.can_go_on
        relay = Relay(
            cast("Client", request.protocol),
            answer.connection,
            gate,
            is_chunked=out.headers.get("transfer-encoding") == "chunked",
            watchdog=watchdog,
            wait=wait,
        )
        try:
            async with watchdog.waiting(wait):
                await relay.run()
        finally:
            if gate is not None:
                call.relayed_tokens += relay.pieces

    def _blame_break(self, call: Call, error: WaitEndedError | BrokenError) -> str:
        """Note why an answer did not come to its end, and return it."""
        if isinstance(error, WaitEndedError) and error.end == "lost":
            return "lost"  # it is ejected for this already
        failure: Failure = "timeout" if isinstance(error, WaitEndedError) else "disconnect"
        self._tell(call, failure)
        return failure

    def _head(self, call: Call, answer: Answer) -> Relayed:
        upstream = answer.head
        out = Relayed(
            status=upstream.status,
            reason=upstream.reason,
            headers=headers.to_client(
                upstream.headers, call.request_id, call.endpoint, retried=call.attempts > 1
            ),
        )
        out.headers["server"] = "yaie"
        headers.add_headers(out.headers, call.answer_headers)
        if HEADER_ROUTE in call.headers:
            out.headers[HEADER_ROUTE] = self._route(call)
        if upstream.is_events:
            out.headers.popall("content-length", None)  # an error event may follow
        return out

    def _route(self, call: Call) -> str:
        """Say why this engine answers. Other engines are only counted: clients need no more."""
        model = self._now(call.model)
        names = {endpoint.name for endpoint in model.endpoints}
        told = {
            "policy": "stored" if call.holder else model.policy,
            "outcome": call.outcome,
            "attempts": call.attempts,
            "engines": len(names),
            "ejected": len(self._monitor.avoided(names)),
            "busy": len(self._monitor.busy(names)),
            "in-flight": self._admission.loads[call.endpoint],
            "held-seconds": f"{call.held_s:.3f}",
        }
        return "; ".join(f"{name}={value}" for name, value in told.items())


async def _whole(answer: Answer) -> web.Response:
    """Read an answer that is no stream, or the beginning of a long one."""
    body = answer.first
    while len(body) < _MOST_WHOLE_BYTES and (data := await answer.connection.read()):
        body += data
    return web.Response(status=answer.head.status, body=body)


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
