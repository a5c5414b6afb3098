"""The first HTTP process: it binds the sockets, starts the others, supervises the engine, serves.

The engine process is started first. Then the server listens; until the model is loaded, it is not
ready.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from yaie.config import ModelInfo
from yaie.ipc.channel import Located
from yaie.server.engine.api_server_pool import ApiServerPool
from yaie.server.engine.client import AsyncEngine, EngineState
from yaie.server.engine.private_folder import private_folder
from yaie.server.engine.supervisor import Supervisor
from yaie.server.monitoring.throughput import report_throughput
from yaie.server.options import ServeOptions
from yaie.server.peers import Peers
from yaie.server.process.event_loop import loop_factory
from yaie.server.web.sockets import bind, url_of
from yaie_api import garbage, termination
from yaie_api.errors import YaieError
from yaie_api.http.access.gate import Gate
from yaie_api.http.access.origin import is_loopback
from yaie_api.logs import fields

if TYPE_CHECKING:
    from yaie.server.service import Service
    from yaie.server.web.listener import DrainingServer

log = logging.getLogger(__name__)


def serve(options: ServeOptions) -> int:
    """Serve until a signal. Return the exit status: 0 after a signal, 1 if the engine failed."""
    with contextlib.ExitStack() as stack:
        count = options.api_server_count
        listener = stack.enter_context(bind(options.host, options.port, shared=count > 1))
        control = None
        if options.admin_port is not None:
            control = stack.enter_context(bind(options.admin_host, options.admin_port))
        peers, api_servers = Peers(), ApiServerPool()
        if count > 1:
            from yaie.server.process import api_server_worker

            folder = stack.enter_context(private_folder())
            peers, api_servers = (
                Peers(folder, 0, count),
                api_server_worker.hire(options, listener, control, folder),
            )
            stack.callback(api_servers.end)
        runner = stack.enter_context(asyncio.Runner(loop_factory=loop_factory()))
        return runner.run(_serve(options, listener, control, api_servers, peers))


async def _serve(
    options: ServeOptions,
    listener: socket.socket,
    control: socket.socket | None,
    api_servers: ApiServerPool,
    peers: Peers,
) -> int:
    engine = AsyncEngine(watch_prefixes=bool(options.prefix_key))
    # The engine process may have come that far before there is a service.
    created: asyncio.Future[Service] = asyncio.get_running_loop().create_future()

    async def on_located(model: Located) -> None:
        await (await created).load_tokenizer(model)

    async def on_ready(info: ModelInfo) -> None:
        service = await created
        await service.load(info)
        garbage.freeze()
        log.info("ready", extra=_describe(info, service.names, listener))

    supervisor = Supervisor(
        options.command,
        engine,
        on_located,
        on_ready,
        backoff_s=options.restart_backoff_s,
        silent_s=options.silent_s,
        api_servers=api_servers,
    )
    engine_task = asyncio.ensure_future(supervisor.run())
    await supervisor.started()
    try:
        # These imports take half a second to a second, in which the engine process imports torch.
        from yaie.server.process.assembly import answer_peer, create_service, public_app
        from yaie.server.web.listener import FirstServer

        service = create_service(options, engine, peers)
    except BaseException:  # a package that is missing, or an option that is refused
        await supervisor.stop()
        await asyncio.gather(engine_task, return_exceptions=True)
        raise
    created.set_result(service)
    server = FirstServer(
        public_app(options, service), service, api_servers, drain_s=options.drain_s
    )
    engine_task.add_done_callback(lambda _: server.end())
    api_servers.watch(partial(_end_without_one, server))
    log.info("listening", extra=fields(url=url_of(listener)))
    if _is_open(options.host, options):
        log.warning("anyone who reaches this address can use the model: no API key is set")
    async with (
        peers.answering(partial(answer_peer, service)),
        _admin(service, options, control),
        _beside(report_throughput(engine)),
        _beside(garbage.collect_when_idle(lambda: engine.num_live == 0)),
    ):
        await server.serve(sockets=[listener])
        if not service.draining:
            api_servers.end()
        others_ended_well = await api_servers.left(options.drain_s)
        service.close()
        return max(await _end(supervisor, engine_task, engine), int(not others_ended_well))


@contextlib.asynccontextmanager
async def _beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run `work` while the context is open."""
    task = asyncio.ensure_future(work)
    try:
        yield
    finally:
        task.cancel()


def _end_without_one(server: "DrainingServer") -> None:
    log.critical("an HTTP process has ended, and the server ends with it")
    server.end_now()


@contextlib.asynccontextmanager
async def _admin(
    service: "Service", options: ServeOptions, control: socket.socket | None
) -> AsyncIterator[None]:
    """Serve the admin port while the context is open."""
    if control is None:
        yield
        return
    from yaie.server import admin
    from yaie.server.web.app import create_app
    from yaie.server.web.listener import HttpServer

    app = create_app(
        service,
        endpoints=admin.ENDPOINTS,
        gate=Gate(options.api_keys, local_only=is_loopback(options.admin_host), with_pages=False),
        limits=options.limits,
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
    return not is_loopback(host) and not options.api_keys


async def _end(
    supervisor: Supervisor, engine_task: "asyncio.Future[None]", engine: AsyncEngine
) -> int:
    await supervisor.stop()
    try:
        await engine_task
    except YaieError as error:
        log.critical("engine failed", extra=fields(reason=error.message))
        termination.leave(error.message)
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
