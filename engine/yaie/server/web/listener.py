"""uvicorn as this server uses it: listening sockets, and our answer to signals.

SIGTERM drains: readiness turns false, new requests get 503, running ones finish up to a deadline. A
second signal, or Ctrl-C with nothing running, ends it at once.
"""

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Iterator
from types import FrameType
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from yaie.server.engine.api_server_pool import ApiServerPool
from yaie.server.engine.client import EngineState
from yaie.server.service import Service
from yaie.server.web.protocol import DeadlineH11
from yaie_api.errors import UnavailableError
from yaie_api.logs import fields

log = logging.getLogger(__name__)

BACKLOG: Final = 2048


class HttpServer(uvicorn.Server):
    """uvicorn that leaves signals alone and serves until `end`."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__(
            uvicorn.Config(
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
        )

    def end(self) -> None:
        """Stop listening and return from `serve`."""
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class DrainingServer(HttpServer):
    """Ends when it is told to, after what is running has ended."""

    def __init__(self, app: ASGIApp, service: Service, *, drain_s: float) -> None:
        super().__init__(app)
        self._service = service
        self._drain_s = drain_s
        self._drain_task: asyncio.Task[None] | None = None

    def drain(self) -> None:
        """Take no new requests; end when the running ones have ended."""
        if self._drain_task is None:
            self._service.draining = True
            self._drain_task = asyncio.get_running_loop().create_task(self._drain())

    def end_now(self) -> None:
        """End whatever runs."""
        self.force_exit = True
        self.end()

    async def _drain(self) -> None:
        await self._finish()
        self.end()

    async def _finish(self) -> None:
        """Until every request that has arrived is answered, whether the engine knows it yet or not.
        What is left at the deadline ends with an error.
        """
        engine = self._service.engine
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._drain_s):
                while requests := set(self.server_state.tasks):
                    await asyncio.wait(requests)
        if engine.num_live:
            log.warning("drain deadline passed", extra=fields(requests=engine.num_live))
            engine.detach(EngineState.STOPPED)


class FirstServer(DrainingServer):
    """Answers signals, for the other HTTP processes too."""

    def __init__(
        self, app: ASGIApp, service: Service, api_servers: ApiServerPool, *, drain_s: float
    ) -> None:
        super().__init__(app, service, drain_s=drain_s)
        self._api_servers = api_servers

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
        if self._service.draining:
            self._api_servers.end()
            self.end_now()
            return
        log.info("draining", extra=fields(signal=signal.Signals(sig).name))
        self._api_servers.drain()
        self.drain()

    async def _drain(self) -> None:
        """The others are waited for before this one ends: until then it answers signals."""
        await self._finish()
        await self._api_servers.left(self._drain_s)
        self.end()


def bind(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """A listening address, checked before anything heavy starts. `shared`: others may `join` it.

    Raises:
        UnavailableError: the address is taken or not ours.

    """
    listener = _socket_for(host)
    try:
        listener.bind((host, port))
        # Not before it is bound: two servers that are started by mistake would both get the port.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, int(shared))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise UnavailableError(f"Cannot listen on {host}:{port}: {error.strerror}.") from error
    return listener


def join(shared: socket.socket) -> socket.socket:
    """One more listener on an address that is shared: the kernel spreads connections over them."""
    host, port = shared.getsockname()[:2]
    listener = _socket_for(host)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.bind((host, port))
    listener.listen(BACKLOG)
    return listener


def _socket_for(host: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return listener


def url_of(listener: socket.socket) -> str:
    """Where clients reach the listener."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
