"""The server's outer edge: limits of the protocol that the handler never sees.

Header lines, their number and their size are bounded by aiohttp's parser, idle kept-alive
connections by its timer. This adds what it lacks: a new connection must bring a whole request head
within `header_timeout_s`, or it is closed; a half-sent head would hold it for ever.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

Handle = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
_IDLE_S: Final = 75.0


class Edge(web.Server):
    """aiohttp's low-level server with a deadline for the first request head."""

    def __init__(self, handle: Handle, *, header_timeout_s: float) -> None:
        super().__init__(
            self._begin,
            handler_cancellation=True,
            access_log=None,
            auto_decompress=False,
            keepalive_timeout=_IDLE_S,
        )
        self._handle = handle
        self._header_timeout_s = header_timeout_s
        self._waiting: dict[int, asyncio.TimerHandle] = {}

    def connection_made(self, handler: "RequestHandler", transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        self._waiting[id(handler)] = asyncio.get_running_loop().call_later(
            self._header_timeout_s, transport.abort
        )

    def connection_lost(self, handler: "RequestHandler", exc: BaseException | None = None) -> None:
        self._arrived(handler)
        super().connection_lost(handler, exc)

    async def _begin(self, request: web.BaseRequest) -> web.StreamResponse:
        self._arrived(request.protocol)
        return await self._handle(request)

    def _arrived(self, handler: "RequestHandler") -> None:
        timer = self._waiting.pop(id(handler), None)
        if timer is not None:
            timer.cancel()
