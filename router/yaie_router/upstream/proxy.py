"""Forwards a request to an engine, and its answer to the client.

Until the first token of an answer, the request may be sent again to another engine, within a
budget. From then on the answer is delivered, and if its engine dies, a stream may go on at another.
"""

import time
from collections import Counter
from contextlib import nullcontext
from typing import Final

from aiohttp import web
from multidict import CIMultiDictProxy

from yaie_api.errors import UnavailableError
from yaie_router.balancing import affinity
from yaie_router.balancing.admission import Admission
from yaie_router.balancing.affinity import Decision
from yaie_router.discovery.endpoints import Directory
from yaie_router.discovery.objects import Endpoint, Model
from yaie_router.health.monitor import Monitor
from yaie_router.health.outlier_detection import Event
from yaie_router.health.retry_budget import RetryBudgets
from yaie_router.health.watchdog import Wait, WaitEndedError
from yaie_router.metrics import Metrics
from yaie_router.prefixes.placer import Placer
from yaie_router.upstream import headers
from yaie_router.upstream.attempt import Answer, AttemptError, Request, open_answer
from yaie_router.upstream.call import Call
from yaie_router.upstream.deadlines import Deadlines
from yaie_router.upstream.delivery.delivery import Delivery
from yaie_router.upstream.delivery.relayed import break_off
from yaie_router.upstream.failover.failover import Failover, Peers
from yaie_router.upstream.failover.resumable import Resumable, StreamBrokenError
from yaie_router.upstream.http1.pool import Pool
from yaie_router.upstream.retries import others_may_take

NO_ENGINE_RETRY_S: Final = 5.0
_MOST_WHOLE_BYTES: Final = 64 << 10
_NOTICED_S: Final = 0.1
"""A request that waited less goes on with its client's time limit as it came."""
_LEAST_S: Final = 0.001
_NO_TICKET: Final = nullcontext()


class Proxy:
    """Chooses an engine, sends, retries and goes on. Its only state is the turns of round robin."""

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
        failover: Failover,
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
        self._failover = failover
        self._forward_keys = forward_keys
        self._delivery = Delivery(
            directory,
            admission=admission,
            monitor=monitor,
            placer=placer,
            metrics=metrics,
            deadlines=deadlines,
        )
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
            names = {endpoint.name for endpoint in self._directory.current(call.model).endpoints}
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

        call.tried, call.ticket = {call.endpoint}, None
        peers = Peers(lambda: self._directory.current(call.model), unusable, self._admission.loads)
        answered = await self._failover.go_on(stream, peers, attempt)
        if answered is not None or stream.out is None:
            return answered or web.Response(status=500)
        self._metrics.broken_streams.labels(call.model.name).inc()
        await break_off(request, stream.out, path=call.path)
        return stream.out

    def _choose(self, call: Call) -> Endpoint:
        decision = Decision(call.holder, "stored") if call.holder else self._pick(call)
        if call.attempts == 0:
            self._measure(call)
        call.outcome = decision.outcome
        self._metrics.picks_of[call.model.name, decision.outcome].inc()
        return decision.endpoint

    def _measure(self, call: Call) -> None:
        """Observe what led to the first choice for a request."""
        seconds = time.perf_counter() - call.arrived_s - call.held_s
        self._metrics.decision.observe(seconds)
        if call.held_s > _NOTICED_S:
            self._metrics.held.labels(call.model.name).observe(call.held_s)
        if call.ticket is not None:
            choice = call.ticket.choice
            share = choice.matched / max(1, choice.tokens)
            self._metrics.prefix_match_of[(call.model.name,)].observe(share)

    def _pick(self, call: Call) -> Decision:
        model = self._directory.current(call.model)
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

    def _may_retry(self, call: Call, failure: AttemptError) -> bool:
        names = {endpoint.name for endpoint in self._directory.current(call.model).endpoints}
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
        with self._admission.sent_to(endpoint.name), call.ticket or _NO_TICKET:
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
                return await self._delivery.deliver(request, call, answer, wait)
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
