"""Forwards a request to an engine, and the bytes of its answer to the client, unparsed.

Until the first token of an answer, the request may be sent again to another engine, within a
budget. From then on, `relay` passes its bytes on without this coroutine, which only waits for the
end. If the client leaves, the server cancels the handler, and the connection to the engine closes
at once.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Final, cast

from aiohttp import web
from multidict import CIMultiDictProxy

from yaie_api.errors import EngineError, UnavailableError
from yaie_api.http.usage_note import TokenUsage
from yaie_api.names import HEADER_ROUTE, HEADER_USAGE
from yaie_api.prefix import PrefixKeys
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
from yaie_router.prefixes.placer import Placer, Ticket
from yaie_router.upstream import headers
from yaie_router.upstream.attempt import Answer, AttemptError, Request, open_answer
from yaie_router.upstream.deadlines import Deadlines
from yaie_router.upstream.http1.connection import BrokenError
from yaie_router.upstream.http1.pool import Pool
from yaie_router.upstream.relay import Client, Relay
from yaie_router.upstream.retries import others_may_take
from yaie_router.upstream.stream import EventGate, last_words
from yaie_router.upstream.trail import UNTRACED, Trail

NO_ENGINE_RETRY_S: Final = 5.0


class _Relayed(web.StreamResponse):
    """An answer whose body a `Relay` writes. `is_ended`: its end, too."""

    is_ended = False

    async def write_eof(self, data: bytes = b"") -> None:
        if not self.is_ended:
            await super().write_eof(data)


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
    what the answer gets beside the engine's. `trail`: what its spans tell. `ticket`: of the engine
    that it was placed at by what engines publish, if it was.
    """

    method: str
    path: str
    headers: CIMultiDictProxy[str]
    body: bytes
    model: Model
    keys: PrefixKeys | None
    holder: Endpoint | None
    request_id: str
    arrived_s: float
    tenant: str = ""
    streams: bool = False
    held_s: float = 0.0
    answer_headers: Mapping[str, str] = field(default_factory=dict)
    let_go: Callable[[], None] = lambda: None
    trail: Trail = UNTRACED
    endpoint: str = ""
    outcome: Outcome = "balanced"
    first_token_s: float | None = None
    usage: TokenUsage | None = None
    sent_s: float = 0.0
    attempts: int = 0
    tried: set[str] = field(default_factory=set)
    ticket: Ticket | None = None


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
        placer: Placer,
        metrics: Metrics,
        deadlines: Deadlines,
        forward_keys: bool = True,
    ) -> None:
        self._pool = pool
        self._directory = directory
        self._admission = admission
        self._monitor = monitor
        self._budgets = budgets
        self._placer = placer
        self._metrics = metrics
        self._deadlines = deadlines
        self._forward_keys = forward_keys
        self._turns: Counter[str] = Counter()

    async def forward(self, request: web.BaseRequest, call: Call) -> web.StreamResponse:
        """Answer the request from an engine.

        Raises:
            UnavailableError: no engine answers.

        """
        self._budgets.of(call.model.name).deposit()
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

    def _choose(self, call: Call) -> Endpoint:
        decision = Decision(call.holder, "stored") if call.holder else self._pick(call)
        if call.attempts == 0:
            seconds = time.perf_counter() - call.arrived_s - call.held_s
            self._metrics.decision.observe(seconds)
        call.outcome = decision.outcome
        self._metrics.picks.labels(call.model.name, decision.outcome).inc()
        return decision.endpoint

    def _pick(self, call: Call) -> Decision:
        model = self._now(call.model)
        turn = self._turns[model.name]
        self._turns[model.name] += 1
        unusable = self._unusable(model, call)
        call.ticket = None
        if call.keys is not None and model.policy == "PrefixAffinity":
            call.ticket = self._placer.place(model, call.keys, unusable)
        if call.ticket is not None:
            return Decision(call.ticket.endpoint, call.ticket.choice.placement.reason)
        decision = affinity.pick(
            model.endpoints,
            key=None if call.keys is None else call.keys.home_key,
            loads=self._admission.loads,
            policy=model.policy,
            load_factor=model.load_factor,
            turn=turn,
            unusable=unusable,
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
        with self._admission.sent_to(endpoint.name), call.ticket or nullcontext():
            try:
                answer = await self._open(call, wait)
            except AttemptError as failure:
                self._blame(call, failure)
                raise
            except BaseException:  # cancelled: it says nothing about the endpoint
                self._tell(call, "abandoned")
                raise
            call.body = b""  # it is not sent again
            call.let_go()
            try:
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
        call.trail.put_in(sent)
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
        if call.ticket is not None:
            call.ticket.computed()
        call.trail.answered(answer.head.status)
        out = self._head(call, answer)
        await out.prepare(request)
        is_chunked = out.headers.get("transfer-encoding") == "chunked"
        call.first_token_s = time.perf_counter() - call.arrived_s
        self._metrics.first_byte.labels(call.model.name).observe(call.first_token_s)
        is_events, watchdog = answer.head.is_events, self._monitor.watchdog
        wait = self._deadlines.next_wait(first, is_events=is_events, has_tokens=answer.has_tokens)
        gate = EventGate() if is_events else None
        call.usage = TokenUsage.read(answer.head.headers.get(HEADER_USAGE, ""))
        relay = Relay(
            cast("Client", request.protocol),
            answer.connection,
            gate,
            is_chunked=is_chunked,
            watchdog=watchdog,
            wait=wait,
        )
        try:
            async with watchdog.waiting(wait):
                await relay.run(answer.first)
        except (WaitEndedError, BrokenError) as error:
            failure: Failure = "timeout" if isinstance(error, WaitEndedError) else "disconnect"
            self._tell(call, failure)
            call.trail.broke(failure)
            self._metrics.broken_streams.labels(call.model.name).inc()
            await _break_off(request, out, path=call.path if is_events else None)
            return out
        finally:
            if gate is not None and gate.usage is not None:
                call.usage = gate.usage
            if call.usage is not None and call.keys is not None:
                self._placer.learn(call.model.name, call.keys, call.usage.prompt_tokens)
        out.is_ended = True
        if answer.head.status < 500:
            self._tell(call, "finished")
        return out

    def _head(self, call: Call, answer: Answer) -> "_Relayed":
        upstream = answer.head
        out = _Relayed(
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
            **(call.ticket.choice.told() if call.ticket else {}),
        }
        return "; ".join(f"{name}={value}" for name, value in told.items())


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
