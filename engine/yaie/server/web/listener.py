"""The uvicorn servers, and what they do on signals.

At the first signal the server drains: it is not ready, new requests get 503, and running ones may
finish until a deadline. At the second signal it ends at once.
"""

import asyncio
import contextlib
import logging
import signal
from collections.abc import Iterator
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from yaie.server.engine.api_server_pool import ApiServerPool
from yaie.server.engine.client import EngineState
from yaie.server.service import Service
from yaie.server.web.protocol import DeadlineH11
from yaie.server.web.sockets import BACKLOG
from yaie_api.logs import fields

log = logging.getLogger(__name__)


class HttpServer(uvicorn.Server):
    """A uvicorn server that does not handle signals, and serves until `end`."""

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
    """A server that can drain: it ends when its running requests have ended."""

    def __init__(self, app: ASGIApp, service: Service, *, drain_s: float) -> None:
        super().__init__(app)
        self._service = service
        self._drain_s = drain_s
        self._drain_task: asyncio.Task[None] | None = None

    def drain(self) -> None:
        """Take no new requests; end when the running ones have ended."""
        if self._drain_task is None:
            self._service.draining = True
            self._service.engine.prefixes.close()
            self._drain_task = asyncio.get_running_loop().create_task(self._drain())

    def end_now(self) -> None:
        """End at once, whatever runs."""
        self.force_exit = True
        self.end()

    async def _drain(self) -> None:
        await self._finish()
        self.end()

    async def _finish(self) -> None:
        """Wait until every request that has arrived is answered, even if the engine has not got it
        yet. At the deadline, the rest end with an error.
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
    """The server of the first HTTP process. It handles signals, for the other processes too."""

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
        """Drain at the first signal, end at once at the second."""
        del frame
        if self._service.draining:
            self._api_servers.end()
            self.end_now()
            return
        name, running = signal.Signals(sig).name, self._service.engine.num_live
        hint = "a second signal ends it at once"
        log.info("draining", extra=fields(signal=name, requests=running, hint=hint))
        self._api_servers.drain()
        self.drain()

    async def _drain(self) -> None:
        """Wait for the other processes before this one ends, so that a second signal works."""
        await self._finish()
        await self._api_servers.left(self._drain_s)
        self.end()
