"""One connection to an engine: a request goes out, and its answer comes in.

    idle ──send──▶ head ──▶ body, read by pieces ──splice──▶ body, given to a sink ──▶ done

Until a stream's first token its bytes are read by pieces, for another engine may have to answer.
From then on each read is given to the sink within the callback of the event loop: a coroutine woken
for each event cost 72-79 us of CPU, this costs a quarter of it.
"""

import asyncio
import socket
from collections.abc import Iterable
from typing import Protocol, cast

from yaie_router.upstream.http1.framing import Body, FramingError
from yaie_router.upstream.http1.head import ResponseHead, head_end, parse_head, request_head

RECEIVE_BYTES = 32 << 10
"""The kernel's buffer, and so the longest read. With the client's write buffer, this is what a
stream holds of a slow reader.
"""
_MOST_PENDING_BYTES = 64 << 10
_JOINED_BYTES = 16 << 10
"""A body up to this size is copied behind its head: uvloop gathers several buffers for more."""
_INFORMATIONAL = range(100, 200)


class BrokenError(Exception):
    """The engine did not finish its answer, or it is no HTTP."""


class Sink(Protocol):
    """Takes the body of an answer as it comes."""

    def chunk(self, frame: bytes, at: int) -> None:
        """Take exactly one chunk as it came; its payload is `frame[at:-2]`."""

    def payload(self, data: bytes) -> None:
        """Take bytes of the body."""

    def ended(self, error: BrokenError | None, last: bytes = b"") -> None:
        """Take note that nothing more comes. `error`: the body is not whole. `last`: bytes of the
        body that came together with its end.
        """


class Connection(asyncio.Protocol):
    """A connection to the engine at an address and port, `key`."""

    def __init__(self, key: tuple[str, int]) -> None:
        self.key = key
        self.idle_since_s = 0.0
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._is_asked = False
        self._begin()

    def _begin(self) -> None:
        self._raw = b""
        self._head: ResponseHead | None = None
        self._body: Body | None = None
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._is_paused = False
        self._waiter: asyncio.Future[None] | None = None
        self._sink: Sink | None = None
        self._error: BrokenError | None = None

    # What its user calls

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def is_whole(self) -> bool:
        """Whether the answer has come to its end, and all of it was read."""
        return self._is_whole and not self._pending and self._error is None

    @property
    def is_reusable(self) -> bool:
        """Whether the answer came whole, and nothing else, and the engine keeps the connection."""
        return (
            self.is_open
            and self._error is None
            and self._head is not None
            and self._head.keeps_open
            and self._head.body.is_done
            and not self._head.body.has_more
            and self._transport is not None
            and not self._transport.get_write_buffer_size()
        )

    def send(
        self, method: str, target: str, headers: Iterable[tuple[str, str]], body: bytes
    ) -> None:
        """Send a request.

        Raises:
            BrokenError: the connection has ended.

        """
        if self._transport is None:
            raise BrokenError("the connection has ended")
        self._begin()
        self._is_asked = True
        address, port = self.key
        host = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        head = request_head(method, target, host, headers, len(body))
        if len(body) <= _JOINED_BYTES:
            self._transport.write(head + body)
        else:
            self._transport.writelines((head, body))

    async def head(self) -> ResponseHead:
        """Wait for the answer's head.

        Raises:
            BrokenError: none came.

        """
        while self._head is None:
            await self._more()
        return self._head

    async def read(self) -> bytes:
        """Wait for bytes of the body; b"": it is whole.

        Raises:
            BrokenError: it broke.

        """
        while not self._pending and not self._is_whole:
            await self._more()
        data = b"".join(self._pending)
        self._pending, self._pending_bytes = [], 0
        self.resume()
        return data

    def splice(self, sink: Sink) -> None:
        """Give everything from now on to the sink."""
        for data in self._pending:
            sink.payload(data)
        self._pending = []
        if self._is_whole or self._error is not None:
            sink.ended(self._error)
            return
        self._sink = sink
        self.resume()

    def pause(self) -> None:
        """Read nothing for now."""
        transport = self._transport
        if transport is not None and not self._is_paused and not transport.is_closing():
            self._is_paused = True
            transport.pause_reading()

    def resume(self) -> None:
        if self._is_paused:
            self._is_paused = False
            if self._transport is not None and not self._transport.is_closing():
                self._transport.resume_reading()

    def rest(self) -> None:
        """Wait for the next request."""
        self.resume()
        self._is_asked = False
        self._sink = None
        self._pending = []

    def close(self) -> None:
        """End the connection at once: the engine sees that nobody waits any more."""
        self._sink = None
        if self._transport is not None:
            self._transport.abort()

    # What the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        ours = self._transport.get_extra_info("socket")
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)

    def data_received(self, data: bytes) -> None:
        body, sink = self._body, self._sink
        try:
            if body is None or sink is None:
                self._take(data)
            elif at := body.only_chunk(data):
                sink.chunk(data, at)
            else:
                payload = body.feed(data)
                if body.is_done:
                    self._sink = None
                    sink.ended(None, payload)
                else:
                    sink.payload(payload)
        except FramingError as error:
            self._deliver(error.payload)
            self._fail(str(error))

    def eof_received(self) -> None:
        """The transport closes itself; `connection_lost` follows."""

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if not self._is_asked or self._is_whole:
            return
        if self._body is None or exc is not None:
            self._fail("the connection was lost")
            return
        try:
            self._body.end()
        except FramingError as error:
            self._fail(str(error))
            return
        self._wake()
        sink, self._sink = self._sink, None
        if sink is not None:
            sink.ended(None)

    # Its own

    @property
    def _is_whole(self) -> bool:
        return self._body is not None and self._body.is_done

    async def _more(self) -> None:
        if self._error is not None:
            raise self._error
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _take(self, data: bytes) -> None:
        """Keep what comes until somebody reads it."""
        if not self._is_asked:
            self.close()  # nobody asked: what follows could not be told from an answer
            return
        while self._body is None:
            self._raw += data
            end = head_end(self._raw)
            if not end:
                return
            head = parse_head(self._raw[:end], self._loop)
            data, self._raw = self._raw[end:], b""
            if head.status not in _INFORMATIONAL:
                self._head, self._body = head, head.body
            elif not data:
                return
        if data:
            if self._body.is_done:
                self._body.has_more = True
            else:
                self._deliver(self._body.feed(data))
        self._wake()

    def _deliver(self, payload: bytes) -> None:
        if self._sink is not None:
            self._sink.payload(payload)
        elif payload:
            self._pending.append(payload)
            self._pending_bytes += len(payload)
            if self._pending_bytes > _MOST_PENDING_BYTES:
                self.pause()

    def _fail(self, reason: str) -> None:
        self._error = BrokenError(reason)
        self._wake()
        sink, self._sink = self._sink, None
        if sink is not None:
            sink.ended(self._error)
        self.close()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
