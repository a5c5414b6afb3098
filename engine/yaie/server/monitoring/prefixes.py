"""GET /prefixes: which prefix keys are cached here, and the load, for routers (docs/routing.md)."""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from yaie.server.answers.response_body import chunk
from yaie.server.answers.stream import until_disconnect
from yaie.server.engine.prefix_feed import PrefixFeed
from yaie.server.request.http import service_of
from yaie_api.errors import NotFoundError, UnavailableError
from yaie_api.names import ENV_PREFIX_KEY

MEDIA: Final = "application/x-ndjson"
_START: Final[Message] = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", MEDIA.encode()), (b"cache-control", b"no-store")],
}


async def prefixes(request: Request) -> Response:
    """Stream what the cache has.

    Raises:
        NotFoundError: this server publishes no prefix keys.
        UnavailableError: the engine is not ready, or the server is draining.

    """
    feed = service_of(request).engine.prefixes
    if not feed.wanted:
        told = f"Prefix keys are not published: {ENV_PREFIX_KEY} is not set."
        raise NotFoundError(told, code="prefixes_not_published")
    if not feed.is_open:
        raise UnavailableError("There is nothing to tell yet.", retry_after_s=1.0)
    if request.method == "HEAD":
        return Response(media_type=MEDIA)
    return _PrefixStream(feed)


class _PrefixStream(Response):
    """Sends lines until the engine or the reader is gone. It waits while the reader is slow."""

    def __init__(self, feed: PrefixFeed) -> None:
        super().__init__()
        self._feed = feed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope
        await until_disconnect(receive, self._send_all(send))

    async def _send_all(self, send: Send) -> None:
        await send(_START)
        async for lines in self._feed.lines():
            await send(chunk(lines))
        await send({"type": "http.response.body", "body": b"", "more_body": False})
