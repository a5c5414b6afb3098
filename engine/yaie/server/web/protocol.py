"""uvicorn's h11 protocol with deadlines, so that a slow or silent client cannot hold a socket.

uvicorn itself only closes connections that are idle after a request. Here one timer runs from the
connection, and from the first byte of each further request, until the headers are complete. Another
one runs while the client does not read the response. `DirectBody` writes a streamed response
straight to the connection.
"""

import asyncio
import json
from collections.abc import Callable
from typing import Any, Final, Self

import h11
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from yaie.server.answers.response_body import EXTENSION, nothing
from yaie_api.errors import InvalidRequestError

HEADER_DEADLINE_S: Final = 10.0
READ_DEADLINE_S: Final = 60.0


class DeadlineH11(H11Protocol):
    """Closes a connection if its request headers are not complete in time, or if its client does
    not read; the request is then aborted as if the client had left.
    """

    header_deadline_s = HEADER_DEADLINE_S
    read_deadline_s = READ_DEADLINE_S
    _deadline: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None
    _body: "DirectBody | None" = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._wrapped = self.app
        self.app = self._with_body

    async def _with_body(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the application, and offer it a body that writes straight to the connection."""
        if scope["http_version"] == "1.1":  # bodies of older versions have no chunks
            self._body = DirectBody(self.cycle, self.loop.time)
            scope["extensions"] = {EXTENSION: self._body}
        await self._wrapped(scope, receive, send)

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._arm()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def _should_upgrade(self) -> bool:
        """Ignore an offer to change the protocol, and answer the request itself."""
        return False

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP with the same envelope as every other error."""
        body = json.dumps(InvalidRequestError(msg).envelope()).encode()
        headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
        for event in (
            h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._body is not None:
            self._body.is_full = True
        self._unread = self.loop.call_later(self.read_deadline_s, self.transport.abort)

    def resume_writing(self) -> None:
        self._cancel_unread()
        super().resume_writing()
        if self._body is not None:
            self._body.is_full = False
            self._body.on_room()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        self._cancel_unread()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """Run the header timer while a request's headers are incomplete, and only then."""
        if self.conn.their_state is not h11.IDLE:
            self._disarm()
        elif self.conn.trailing_data[0]:
            self._arm()

    def _arm(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(self.header_deadline_s, self._expire)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _cancel_unread(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _expire(self) -> None:
        self._deadline = None
        if not self.transport.is_closing():
            self.transport.close()


class DirectBody:
    """A body (`yaie.server.answers.response_body`) of HTTP/1.1 chunks, past uvicorn and h11.

    Write to it between the response's first and last ASGI messages, which go through uvicorn. h11
    does not count chunks, so it need not see these.
    """

    def __init__(self, cycle: RequestResponseCycle, clock: Callable[[], float]) -> None:
        self._cycle = cycle
        self._write = cycle.transport.write
        self._clock = clock
        self.is_full = cycle.flow.write_paused
        self.on_room: Callable[[], None] = nothing
        self.written_s = 0.0

    def write(self, data: bytes) -> None:
        if data and not self._cycle.disconnected:  # a chunk of no bytes would end the body
            self._write(b"%x\r\n%b\r\n" % (len(data), data))
            self.written_s = self._clock()

    def abort(self) -> None:
        """Break the connection, as a process that dies does."""
        self._cycle.transport.abort()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        self.on_room = nothing
