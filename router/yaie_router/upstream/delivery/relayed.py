"""The client's side of an answer that a `Relay` writes, and the end of one that began too early.

A stream that waits for its model begins before any engine has answered. What is then no stream (an
engine's 400, a refusal of the router) becomes its last event.
"""

import json
from typing import Any

from aiohttp import web

from yaie_api.errors import EngineError
from yaie_api.http import envelopes
from yaie_router.upstream.delivery.stream import last_event, last_words


class Relayed(web.StreamResponse):
    """An answer whose body a `Relay` writes. `is_ended`: its end, too."""

    _send_headers_immediately = False  # but with the body's beginning, in one write
    is_ended = False

    async def begin(self, request: web.BaseRequest, body: bytes) -> None:
        """Write the head, if it is not, and the body's beginning, if there is any."""
        await self.prepare(request)
        if body:
            await self.write(body)
        else:
            request.writer.send_headers()

    async def whole(self, request: web.BaseRequest, body: bytes) -> None:
        """Write the head, if it is not, the whole body and its end."""
        await self.prepare(request)
        await self.write_eof(body)

    async def write_eof(self, data: bytes = b"") -> None:
        if not self.is_ended:
            await super().write_eof(data)


async def break_off(request: web.BaseRequest, out: web.StreamResponse, *, path: str | None) -> None:
    """End the answer of an engine that died after its first byte: with an error event in the form
    of `path`, or by cutting the connection, so that the client sees a broken body, not a short one.
    """
    if path is not None:
        error = EngineError("The engine stopped while it was answering.", code="engine_stopped")
        await out.write(last_words(error, path))
        await out.write_eof()
    elif request.transport is not None:
        request.transport.abort()


async def end_begun(begun: Relayed, instead: web.StreamResponse, path: str) -> None:
    """End a stream that has begun with the error that the request got instead of a stream."""
    await begun.write(last_event(_error_in(instead, path), path))
    await begun.write_eof()


def _error_in(response: web.StreamResponse, path: str) -> dict[str, Any]:
    """Return the error that an answer tells, or one that says that it tells none."""
    body = response.body if isinstance(response, web.Response) else None
    try:
        told = json.loads(body) if isinstance(body, bytes) else None
    except ValueError:
        told = None
    if isinstance(told, dict) and isinstance(told.get("error"), dict):
        return told
    error = EngineError(f"The engine answered {response.status} and no stream.")
    return envelopes.for_path(error, path)
