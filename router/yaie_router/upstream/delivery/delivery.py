"""Delivers an engine's answer: its head, what came with it, and the rest by a `Relay`.

This coroutine waits for the end only. If the client leaves, the server cancels it, and the
connection to the engine closes at once.
"""

import time
from typing import Final, cast

from aiohttp import web

from yaie_api.http.usage_note import TokenUsage
from yaie_api.names import HEADER_ROUTE, HEADER_USAGE
from yaie_router.balancing.admission import Admission
from yaie_router.discovery.endpoints import Directory
from yaie_router.health.monitor import Monitor
from yaie_router.health.outlier_detection import Failure
from yaie_router.health.watchdog import Wait, WaitEndedError
from yaie_router.metrics import Metrics
from yaie_router.prefixes.placer import Placer
from yaie_router.upstream import headers
from yaie_router.upstream.attempt import Answer
from yaie_router.upstream.call import Call
from yaie_router.upstream.deadlines import Deadlines
from yaie_router.upstream.delivery.progress import events_in
from yaie_router.upstream.delivery.relay import Client, Relay
from yaie_router.upstream.delivery.relayed import Relayed, break_off
from yaie_router.upstream.delivery.stream import EventGate
from yaie_router.upstream.failover.resumable import StreamBrokenError
from yaie_router.upstream.http1.connection import BrokenError

_MOST_WHOLE_BYTES: Final = 64 << 10


class Delivery:
    """Delivers the answers of all engines."""

    def __init__(
        self,
        directory: Directory,
        *,
        admission: Admission,
        monitor: Monitor,
        placer: Placer,
        metrics: Metrics,
        deadlines: Deadlines,
    ) -> None:
        self._directory = directory
        self._admission = admission
        self._monitor = monitor
        self._placer = placer
        self._metrics = metrics
        self._deadlines = deadlines

    async def deliver(
        self, request: web.BaseRequest, call: Call, answer: Answer, first: Wait
    ) -> web.StreamResponse:
        """Send an answer to the client, as it comes. `first`: the wait for its first token.

        Raises:
            StreamBrokenError: the engine died, and another one can go on.

        """
        if call.ticket is not None:
            call.ticket.computed()
        call.trail.answered(answer.head.status)
        if call.begun is not None and not answer.head.is_events:
            return await _whole(answer)
        out, gate = self._outlet(call, answer), _gate(call, answer)
        call.usage = TokenUsage.read(answer.head.headers.get(HEADER_USAGE, ""))
        try:
            await self._pass_on(request, call, answer, out=out, gate=gate, first=first)
        except (WaitEndedError, BrokenError) as error:
            call.trail.broke(self._blame(call, error))
            if call.resumable is not None and call.resumable.can_go_on:
                raise StreamBrokenError from error
            self._metrics.broken_streams.labels(call.model.name).inc()
            await break_off(request, out, path=None if gate is None else call.path)
            return out
        finally:
            if gate is not None:
                call.usage = gate.usage or call.usage
            if call.usage is not None and call.keys is not None:
                self._placer.learn(call.model.name, call.keys, call.usage.prompt_tokens)
        out.is_ended = True
        if answer.head.status < 500:
            self._monitor.tell(call.endpoint, "finished", call.sent_s)
        return out

    async def _pass_on(
        self,
        request: web.BaseRequest,
        call: Call,
        answer: Answer,
        *,
        out: Relayed,
        gate: EventGate | None,
        first: Wait,
    ) -> None:
        opening = answer.first if gate is None else gate.push(answer.first)
        is_whole = answer.connection.is_whole and not (gate is not None and gate.is_cut_off)
        if not is_whole:
            await out.begin(request, opening)
        if call.first_token_s is None:
            call.first_token_s = time.perf_counter() - call.arrived_s
            self._metrics.first_byte_of[(call.model.name,)].observe(call.first_token_s)
        if gate is not None:
            call.relayed_tokens += events_in(opening)
        if is_whole:
            await out.whole(request, opening if gate is None else opening + gate.flush())
        else:
            await self._splice(request, call, answer, out=out, gate=gate, first=first)

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

    def _blame(self, call: Call, error: WaitEndedError | BrokenError) -> str:
        """Note why an answer did not come to its end, and return it."""
        if isinstance(error, WaitEndedError) and error.end == "lost":
            return "lost"  # it is ejected for this already
        failure: Failure = "timeout" if isinstance(error, WaitEndedError) else "disconnect"
        self._monitor.tell(call.endpoint, failure, call.sent_s)
        return failure

    def _outlet(self, call: Call, answer: Answer) -> Relayed:
        """Return what the client gets the answer by: the one that has begun, or a new one."""
        stream = call.resumable
        out = (stream and stream.out) or call.begun or self._head(call, answer)
        if stream is not None:
            stream.out = out
        return out

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
        model = self._directory.current(call.model)
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
            **(call.ticket.told() if call.ticket else {}),
        }
        return "; ".join(f"{name}={value}" for name, value in told.items())


def _gate(call: Call, answer: Answer) -> EventGate | None:
    if not answer.head.is_events:
        return None
    return EventGate() if call.resumable is None else call.resumable.gate


async def _whole(answer: Answer) -> web.Response:
    """Read an answer that is no stream, or the beginning of a long one."""
    body = answer.first
    while len(body) < _MOST_WHOLE_BYTES and (data := await answer.connection.read()):
        body += data
    return web.Response(status=answer.head.status, body=body)
