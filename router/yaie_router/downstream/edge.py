"""The HTTP server around the handler: its limits on connections.

aiohttp's parser limits the number and the size of headers, and its timer limits idle connections.
This adds what it lacks:

- A new connection must send a whole request head within `header_timeout_s`.
- After an answer that came before the whole body, the connection ends within `LINGER_S`.
- What is not HTTP is answered with the envelope of every other error, not with the library's name.
- A client that reads nothing for `client_stall_s` is cut off. Through back-pressure it would hold
  its engine's slot until TCP gives the peer up.
"""

import asyncio
import functools
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, cast

from aiohttp import web
from aiohttp.http import RawRequestMessage
from aiohttp.web_protocol import RequestHandler

from yaie_api.errors import InvalidRequestError
from yaie_api.http.access.body import LINGER_S
from yaie_router.downstream.answers import error_answer
from yaie_router.downstream.endings import Endings
from yaie_router.upstream.delivery.relay import Flow

Handle = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
_IDLE_S: Final = 75.0
_LOOKS: Final = 4
_WRITE_BUFFER_BYTES: Final = 32 << 10
"""From there on the engine's connection is not read."""


@dataclass(frozen=True)
class _Stall:
    """A write buffer that had `size` bytes in `looks` checks in a row."""

    size: int
    looks: int


class _Connection(RequestHandler):
    """aiohttp's connection, with another answer to what its parser refuses.

    `flow`: who writes an answer's body to the transport, and is told of its buffer.
    """

    flow: Flow | None = None
    endings: Endings

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        cast("asyncio.Transport", transport).set_write_buffer_limits(_WRITE_BUFFER_BYTES)

    def connection_lost(self, exc: BaseException | None) -> None:
        if self.flow is not None:
            self.flow.connection_lost()
        self.wind_up(functools.partial(super().connection_lost, exc))

    def wind_up(self, end: Callable[[], None]) -> None:
        """Call `end`, which ends a request, in this turn of the event loop or in a later one."""
        self.endings.add(end)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self.flow is not None:
            self.flow.pause_writing()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.flow is not None:
            self.flow.resume_writing()

    def data_received(self, data: bytes) -> None:
        """End a broken body: aiohttp would let its reader wait for the rest."""
        super().data_received(data)
        if self._messages and not isinstance(self._messages[-1][0], RawRequestMessage):
            current = self._current_request
            bodies = [payload for _, payload in self._messages]
            for body in (*bodies, *([current.content] if current is not None else ())):
                if not body.is_eof():
                    body.feed_eof()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if status >= 500:
            return super().handle_error(request, status, exc, message)
        error = InvalidRequestError("The request is not valid HTTP, or its headers are too large.")
        response = error_answer(error, uuid.uuid4().hex)
        response.force_close()
        return response


class Edge(web.Server):
    """aiohttp's low-level server, with time limits for the first head and for stalled readers."""

    def __init__(self, handle: Handle, *, header_timeout_s: float, client_stall_s: float) -> None:
        super().__init__(self._begin, handler_cancellation=True)
        self._handle = handle
        self._header_timeout_s = header_timeout_s
        self._client_stall_s = client_stall_s
        self._waiting: dict[int, asyncio.TimerHandle] = {}
        self._endings = Endings()

    def __call__(self) -> RequestHandler:
        connection = _Connection(
            self,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type]  # as aiohttp's own servers do
            auto_decompress=False,
            keepalive_timeout=_IDLE_S,
            lingering_time=LINGER_S,
        )
        connection.endings = self._endings
        return connection

    def connection_made(self, handler: "RequestHandler", transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        self._waiting[id(handler)] = asyncio.get_running_loop().call_later(
            self._header_timeout_s, transport.abort
        )

    def connection_lost(self, handler: "RequestHandler", exc: BaseException | None = None) -> None:
        self._arrived(handler)
        super().connection_lost(handler, exc)

    async def cut_off_stalled(self) -> None:
        """Abort the connections of stalled clients, until cancelled. A client is stalled if its
        full write buffer has not shrunk since the last check: the handler adds nothing to it.
        """
        stalled: dict[int, _Stall] = {}
        while True:
            await asyncio.sleep(self._client_stall_s / _LOOKS)
            before, stalled = stalled, {}
            for handler in self.connections:
                transport = handler.transport
                if transport is None or not handler.writing_paused:
                    continue
                size = transport.get_write_buffer_size()
                last = before.get(id(handler))
                looks = last.looks + 1 if last is not None and last.size == size else 0
                stalled[id(handler)] = _Stall(size, looks)
                if looks >= _LOOKS:
                    transport.abort()

    async def _begin(self, request: web.BaseRequest) -> web.StreamResponse:
        self._arrived(request.protocol)
        return await self._handle(request)

    def _arrived(self, handler: "RequestHandler") -> None:
        timer = self._waiting.pop(id(handler), None)
        if timer is not None:
            timer.cancel()
