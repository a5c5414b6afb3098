"""The HTTP process from start to end: uvicorn, the supervisor, signals and draining.

The server listens at once and says "not ready" until the model is loaded. SIGTERM drains: readiness
turns false, new requests get 503, running ones finish up to a deadline. A second signal, or Ctrl-C
with nothing running, ends it at once.
"""

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from yaie.config import ModelInfo
from yaie.server.app import create_app
from yaie.server.client import AsyncEngine, EngineState
from yaie.server.edge import Limits
from yaie.server.metrics import EngineStatus, ServerMetrics
from yaie.server.origin import is_loopback
from yaie.server.protocol import DeadlineH11
from yaie.server.service import Service
from yaie.server.supervisor import Supervisor
from yaie_api.errors import UnavailableError, YaieError
from yaie_api.logs import fields

log = logging.getLogger(__name__)

BACKLOG: Final = 2048


@dataclass(frozen=True)
class ServeOptions:
    """How to serve; what to serve is in the engine's command.

    Attributes:
        command: argument list of an engine process for a given ipc address.
        names: model names for clients; empty: the engine's own name for the model.
        drain_s: how long running requests may take after SIGTERM.
        restart_backoff_s: wait before the first restart of the engine; doubles with each one.

    """

    command: Callable[[str], Sequence[str]]
    host: str = "127.0.0.1"
    port: int = 8000
    names: tuple[str, ...] = ()
    api_keys: tuple[str, ...] = ()
    drain_s: float = 30.0
    restart_backoff_s: float = 1.0
    use_generation_config: bool = True
    log_prompts: bool = False
    limits: Limits = field(default_factory=Limits)


def serve(options: ServeOptions) -> int:
    """Serve until a signal. Returns the exit status: 0 after a signal, 1 when the engine failed."""
    listener = bind(options.host, options.port)
    with contextlib.closing(listener), asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(_serve(options, listener))


async def _serve(options: ServeOptions, listener: socket.socket) -> int:
    engine = AsyncEngine()
    service = Service(
        engine=engine,
        metrics=ServerMetrics(EngineStatus(lambda: engine.stats, lambda: engine.restarts)),
        names=options.names,
        use_generation_config=options.use_generation_config,
        log_prompts=options.log_prompts,
    )

    async def on_ready(info: ModelInfo) -> None:
        await service.load(info)
        log.info("ready", extra=_describe(info, service.names, listener))

    supervisor = Supervisor(options.command, engine, on_ready, backoff_s=options.restart_backoff_s)
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
    if options.host in ("0.0.0.0", "::") and not options.api_keys:  # noqa: S104 - a comparison
        log.warning("anyone who reaches this address can use the model: no API key is set")
    await server.serve(sockets=[listener])
    return await _end(supervisor, engine_task, engine)


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


class DrainingServer(uvicorn.Server):
    """uvicorn with our answer to signals."""

    def __init__(self, app: ASGIApp, service: Service, *, drain_s: float) -> None:
        config = uvicorn.Config(
            app,
            http=DeadlineH11,
            ws="none",
            log_level="warning",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=2,
            h11_max_incomplete_event_size=64 * 1024,
            backlog=BACKLOG,
        )
        super().__init__(config)
        self._service = service
        self._drain_s = drain_s
        self._drain_task: asyncio.Task[None] | None = None

    def end(self) -> None:
        """Stop listening and return from `serve`."""
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """First signal: drain. Second: end now."""
        del frame
        if self._drain_task is not None:
            self.force_exit = True
            self.end()
            return
        log.info("draining", extra=fields(signal=signal.Signals(sig).name))
        self._service.draining = True
        self._drain_task = asyncio.get_running_loop().create_task(self._drain())

    async def _drain(self) -> None:
        engine = self._service.engine
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._drain_s):
                await engine.wait_idle()
        if engine.num_live:
            log.warning("drain deadline passed", extra=fields(requests=engine.num_live))
            engine.detach(EngineState.STOPPED)
        self.end()


def bind(host: str, port: int) -> socket.socket:
    """A listening address, checked before anything heavy starts.

    Raises:
        UnavailableError: the address is taken or not ours.

    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise UnavailableError(f"Cannot listen on {host}:{port}: {error.strerror}.") from error
    return listener


def url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _describe(
    info: ModelInfo, names: tuple[str, ...], listener: socket.socket
) -> dict[str, dict[str, object]]:
    return fields(
        url=url_of(listener),
        models=", ".join(names),
        architecture=info.architecture,
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
