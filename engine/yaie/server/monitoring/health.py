"""Liveness and readiness, decided from the state of the engine process.

Live: the event loop answers, and the engine is loading, is being restarted, or sends messages.
Ready: the model is loaded, steps end, and the server is not draining. Neither depends on load.
"""

from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from yaie.server.engine.client import EngineState
from yaie.server.peers import AskReady
from yaie.server.request.http import json_response, service_of
from yaie.server.service import Service

LIVE_SILENCE_S: Final = 120.0
READY_SILENCE_S: Final = 5.0
"""The engine process sends a message twice a second, however long a step takes."""


@dataclass(frozen=True)
class Health:
    """A verdict, and its reason in a few words."""

    ok: bool
    reason: str


def liveness(state: EngineState, silence_s: float) -> Health:
    if state in (EngineState.FAILED, EngineState.STOPPED):
        return Health(ok=False, reason=state)
    if state is EngineState.READY and silence_s > LIVE_SILENCE_S:
        return Health(ok=False, reason="engine silent")
    return Health(ok=True, reason=state)


def readiness(
    state: EngineState, silence_s: float, *, draining: bool, loaded: bool, hangs: bool = False
) -> Health:
    if draining:
        return Health(ok=False, reason="draining")
    if state is not EngineState.READY or not loaded:
        return Health(ok=False, reason=state)
    if hangs:
        return Health(ok=False, reason="engine hangs")
    if silence_s > READY_SILENCE_S:
        return Health(ok=False, reason="engine silent")
    return Health(ok=True, reason="ready")


async def livez(request: Request) -> Response:
    engine = service_of(request).engine
    return _respond(liveness(engine.state, engine.silence_s), service_of(request))


async def readyz(request: Request) -> Response:
    """Say whether all HTTP processes are ready: a client cannot choose among them."""
    service = service_of(request)
    verdict = own_readiness(service)
    if verdict.ok and not all(await service.peers.ask(AskReady(), bool)):
        verdict = Health(ok=False, reason="another HTTP process is not ready")
    return _respond(verdict, service)


def own_readiness(service: Service) -> Health:
    """Return the readiness of this HTTP process alone."""
    return readiness(
        service.engine.state,
        service.engine.silence_s,
        draining=service.draining,
        loaded=service.tokenizer_or_none is not None,
        hangs=service.engine.hangs,
    )


def _respond(verdict: Health, service: Service) -> Response:
    body = {"status": "ok" if verdict.ok else "unavailable", "reason": verdict.reason}
    if service.engine.state is EngineState.LOADING:
        body["stage"] = service.engine.stage
        if service.engine.stage_detail:
            body["detail"] = service.engine.stage_detail
    return json_response(body, 200 if verdict.ok else 503)
