"""How every HTTP process of a server is put together: its state, its application, its answers."""

from typing import Any

from yaie.server.engine.client import AsyncEngine
from yaie.server.metrics import EngineStatus, ServerMetrics
from yaie.server.monitoring.health import own_readiness
from yaie.server.options import ServeOptions
from yaie.server.peers import (
    AskLoad,
    AskMetrics,
    AskReady,
    AskResponse,
    Forget,
    Peers,
    Question,
)
from yaie.server.service import Service
from yaie.server.web.app import create_app
from yaie.server.web.edge import Edge
from yaie_api.http.access.gate import Gate
from yaie_api.http.access.origin import is_loopback


def create_service(
    options: ServeOptions, engine: AsyncEngine, peers: Peers | None = None
) -> Service:
    """Make the state of an HTTP process, before its engine process is ready."""
    status = EngineStatus(lambda: engine.stats, lambda: engine.restarts, lambda: engine.info)
    metrics = ServerMetrics(status)
    tracing = options.tracing
    spans = tracing.open("yaie-engine", metrics.dropped_spans) if tracing else None
    return Service(engine, metrics, options, peers=peers or Peers(), spans=spans)


def public_app(options: ServeOptions, service: Service) -> Edge:
    """Make the application of the public port."""
    return create_app(
        service,
        gate=Gate(options.api_keys, options.cors, local_only=is_loopback(options.host)),
        limits=options.limits,
        with_pages=True,
    )


def answer_peer(service: Service, question: Question) -> Any:
    """Answer a question of another HTTP process."""
    match question:
        case AskMetrics():
            return service.metrics.snapshot()
        case AskReady():
            return own_readiness(service).ok
        case AskLoad():
            return service.engine.num_live
        case AskResponse(tenant, response_id):
            return service.responses.get(tenant, response_id)
        case Forget(tenant, response_id):
            return service.responses.delete(tenant, response_id)
