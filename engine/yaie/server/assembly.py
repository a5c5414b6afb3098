"""What every HTTP process of a server is put together from."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from yaie.server.engine.client import AsyncEngine
from yaie.server.engine.supervisor import SILENT_S
from yaie.server.metrics import EngineStatus, ServerMetrics
from yaie.server.monitoring.health import own_readiness
from yaie.server.options import ServiceOptions
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
from yaie.server.web.edge import Edge, Limits
from yaie.server.web.origin import is_loopback


@dataclass(frozen=True, kw_only=True)
class ServeOptions(ServiceOptions):
    """How to serve; what to serve is in the engine's command.

    Attributes:
        command: argument list of an engine process for a given ipc address.
        admin_port: where control endpoints listen; None: nowhere.
        drain_s: how long running requests may take after SIGTERM.
        restart_backoff_s: wait before the first restart of the engine; doubles with each one.
        silent_s: silence after which an engine process is killed.
        api_server_count: HTTP processes that share the port and the engine process.

    """

    command: Callable[[str], Sequence[str]]
    host: str = "127.0.0.1"
    port: int = 8000
    api_keys: tuple[str, ...] = ()
    admin_host: str = "127.0.0.1"
    admin_port: int | None = None
    drain_s: float = 30.0
    restart_backoff_s: float = 1.0
    silent_s: float = SILENT_S
    api_server_count: int = 1
    limits: Limits = field(default_factory=Limits)


def create_service(options: ServeOptions, peers: Peers | None = None) -> Service:
    """The state of an HTTP process with these options, before any engine is there."""
    engine = AsyncEngine()
    status = EngineStatus(lambda: engine.stats, lambda: engine.restarts)
    return Service(engine, ServerMetrics(status), options, peers=peers or Peers())


def public_app(options: ServeOptions, service: Service) -> Edge:
    """The application of the public port."""
    return create_app(
        service,
        api_keys=options.api_keys,
        limits=options.limits,
        local_only=is_loopback(options.host),
        with_pages=True,
    )


def answer_peer(service: Service, question: Question) -> Any:
    """What another HTTP process wants to know of this one."""
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


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """uvloop, imported by who runs a loop only."""
    import uvloop

    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
