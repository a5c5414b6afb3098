"""The answer of a stream that waits for its model: it begins with comments that say what for.

Clients and proxies end a connection on which nothing comes for a minute; a model may take longer to
start. Comments are no events, so clients that read events see none of this.
"""

from typing import Final

from aiohttp import web

from yaie_api.http import envelopes
from yaie_router.downstream.answers import own_headers
from yaie_router.upstream.call import Call
from yaie_router.upstream.delivery.relayed import Relayed
from yaie_router.upstream.headers import add_headers

_EVENTS: Final = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",
}


class WaitingStream:
    """Begins the answer of `call` when there is something to tell."""

    def __init__(self, request: web.BaseRequest, call: Call) -> None:
        self._request = request
        self._call = call

    async def tell(self, stage: str) -> None:
        """Send a comment that names the stage; the first one begins the answer."""
        begun = self._call.begun
        if begun is None:
            begun = self._call.begun = Relayed(headers=self._headers())
            add_headers(begun.headers, self._call.answer_headers)
            await begun.prepare(self._request)
        await begun.write(f": {stage}\n\n".encode())

    def _headers(self) -> dict[str, str]:
        named = {}
        if self._call.path.startswith(envelopes.ANTHROPIC_PATH):
            named[envelopes.ANTHROPIC_REQUEST_ID] = self._call.request_id
        return own_headers(self._call.request_id) | _EVENTS | named
