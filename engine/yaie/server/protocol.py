"""uvicorn's h11 protocol with deadlines: a client that is slow or silent cannot hold a socket.

uvicorn itself only closes connections that are idle after a request. Here a clock runs from the
connection, and from each further request's first byte, until its headers are complete; another one
runs while the client does not read what it asked for.
"""

import asyncio
import json
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from yaie_api.errors import InvalidRequestError

HEADER_DEADLINE_S: Final = 10.0
READ_DEADLINE_S: Final = 60.0


class DeadlineH11(H11Protocol):
    """Closes a connection whose request headers are not complete in time, and one whose client
    does not read: its request is aborted then as if it had left.
    """

    header_deadline_s = HEADER_DEADLINE_S
    read_deadline_s = READ_DEADLINE_S
    _deadline: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

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
        """An offer of another protocol is passed over: the request itself is answered."""
        return False

    def send_400_response(self, msg: str) -> None:
        """What is not HTTP gets the same envelope as every other error."""
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
        self._unread = self.loop.call_later(self.read_deadline_s, self.transport.abort)

    def resume_writing(self) -> None:
        self._cancel_unread()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        self._cancel_unread()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """Half a header is on the clock, anything else is not."""
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
