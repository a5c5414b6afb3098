"""The HTTP process from start to end: sockets, the applications, the supervisor.

The server listens at once and says "not ready" until the model is loaded.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

from yaie.config import ModelInfo
from yaie.server import admin
from yaie.server.app import create_app
from yaie.server.client import AsyncEngine, EngineState
from yaie.server.edge import Limits
from yaie.server.listener import DrainingServer, HttpServer, bind, url_of
from yaie.server.metrics import EngineStatus, ServerMetrics
from yaie.server.options import ServiceOptions
from yaie.server.origin import is_loopback
from yaie.server.service import Service
from yaie.server.supervisor import SILENT_S, Supervisor
from yaie_api.errors import YaieError
from yaie_api.logs import fields

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ServeOptions(ServiceOptions):
    """How to serve; what to serve is in the engine's command.

    Attributes:
        command: argument list of an engine process for a given ipc address.
        admin_port: where control endpoints listen; None: nowhere.
        drain_s: how long running requests may take after SIGTERM.
        restart_backoff_s: wait before the first restart of the engine; doubles with each one.
        silent_s: silence after which an engine process is killed.

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
    limits: Limits = field(default_factory=Limits)


def serve(options: ServeOptions) -> int:
    """Serve until a signal. Returns the exit status: 0 after a signal, 1 when the engine failed."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(bind(options.host, options.port))
        control = None
        if options.admin_port is not None:
            control = stack.enter_context(bind(options.admin_host, options.admin_port))
        runner = stack.enter_context(asyncio.Runner(loop_factory=_loop_factory()))
        return runner.run(_serve(options, listener, control))


def create_service(options: ServeOptions) -> Service:
    """The state of an HTTP process with these options, before any engine is there."""
    engine = AsyncEngine()
    status = EngineStatus(lambda: engine.stats, lambda: engine.restarts)
    return Service(engine, ServerMetrics(status), options)


async def _serve(
    options: ServeOptions, listener: socket.socket, control: socket.socket | None
) -> int:
    service = create_service(options)
    engine = service.engine

    async def on_ready(info: ModelInfo) -> None:
        await service.load(info)
        log.info("ready", extra=_describe(info, service.names, listener))

    supervisor = Supervisor(
        options.command,
        engine,
        on_ready,
        backoff_s=options.restart_backoff_s,
        silent_s=options.silent_s,
    )
    app = create_app(
        service,
        api_keys=options.api_keys,
        limits=options.limits,
        local_only=is_loopback(options.host),
    )
    server = DrainingServer(app, service, drain_s=options.drain_s)
    engine_task = asyncio.ensure_future(supervisor.run())
    engine_task.add_done_callback(lambda _: server.end())
    log.info("listening", extra=fields(url=url_of(listener)))
    if _is_open(options.host, options):
        log.warning("anyone who reaches this address can use the model: no API key is set")
    async with _admin(service, options, control):
        await server.serve(sockets=[listener])
        return await _end(supervisor, engine_task, engine)


@contextlib.asynccontextmanager
async def _admin(
    service: Service, options: ServeOptions, control: socket.socket | None
) -> AsyncIterator[None]:
    """The admin port, as long as the server is there."""
    if control is None:
        yield
        return
    app = create_app(
        service,
        endpoints=admin.ENDPOINTS,
        api_keys=options.api_keys,
        limits=options.limits,
        local_only=is_loopback(options.admin_host),
    )
    server = HttpServer(app)
    task = asyncio.ensure_future(server.serve(sockets=[control]))
    log.info("admin port", extra=fields(url=url_of(control)))
    if _is_open(options.admin_host, options):
        log.warning("anyone who reaches the admin port can control the server: no API key is set")
    try:
        yield
    finally:
        server.end()
        await task


def _is_open(host: str, options: ServeOptions) -> bool:
    return host in ("0.0.0.0", "::") and not options.api_keys  # noqa: S104 - a comparison


async def _end(
    supervisor: Supervisor, engine_task: "asyncio.Future[None]", engine: AsyncEngine
) -> int:
    await supervisor.stop()
    try:
        await engine_task
    except YaieError as error:
        log.critical("engine failed", extra=fields(reason=error.message))
        return 1
    finally:
        engine.detach(EngineState.STOPPED)
    log.info("stopped")
    return 0


def _describe(
    info: ModelInfo, names: tuple[str, ...], listener: socket.socket
) -> dict[str, dict[str, object]]:
    return fields(
        url=url_of(listener),
        models=", ".join(names),
        architecture=info.architecture,
        implementation=info.implementation,
        parameters=info.parameters,
        device=info.device,
        dtype=info.dtype,
        context_tokens=info.max_model_len,
        kv_tokens=info.kv_pages * info.page_size,
    )


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    import uvloop

    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
