"""Splices an answer: bytes of the engine's connection go to the client's within one callback.

    engine ──▶ Connection (framing) ──▶ Relay ──▶ EventGate ──▶ the client's transport
              ◀── pause, resume ──────────────────────────────── its write buffer

No coroutine runs for an event, nothing is parsed, and a chunk that holds whole events goes on as it
came, frame and all. A client that reads slowly holds its write buffer's limit and one read.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from yaie_router.health.watchdog import Wait, Watchdog
from yaie_router.upstream.delivery.progress import shows_data
from yaie_router.upstream.delivery.stream import EventGate
from yaie_router.upstream.http1.connection import BrokenError, Connection

_END: Final = b"0\r\n\r\n"


class Flow(Protocol):
    """Is told when a client's write buffer is full, when it has room again, and when it is gone."""

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def connection_lost(self) -> None: ...


class Client(Protocol):
    """The client's connection. `flow`: who writes to its transport, if anybody. `wind_up` calls
    what ends a request, at once or after those that end at the same time.
    """

    flow: Flow | None

    @property
    def transport(self) -> asyncio.Transport | None: ...

    @property
    def writing_paused(self) -> bool: ...

    def wind_up(self, end: Callable[[], None]) -> None: ...


class Relay:
    """Writes one answer's body to its client. `gate`: of an event stream. `pieces`: how many came
    that were no comments; a piece of a stream is about a token.
    """

    def __init__(
        self,
        client: Client,
        upstream: Connection,
        gate: EventGate | None,
        *,
        is_chunked: bool,
        watchdog: Watchdog,
        wait: Wait,
    ) -> None:
        self._client = client
        self._write = client.transport.write if client.transport else _drop
        self._upstream = upstream
        self._gate = gate
        self._is_chunked = is_chunked
        self._watchdog = watchdog
        self._wait = wait
        self.pieces = 0
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Write what comes of the body from now on; its beginning has been written.

        Raises:
            BrokenError: the engine did not finish it.

        """
        self._client.flow = self
        try:
            self._upstream.splice(self)
            if self._client.writing_paused:
                self.pause_writing()
            await self._done
        finally:
            self._client.flow = None

    # What the engine's connection calls

    def chunk(self, frame: bytes, at: int) -> None:
        gate = self._gate
        if gate is None or not self._is_chunked or not gate.passes(frame, at):
            self.payload(frame[at:-2])
            return
        self._write(frame)
        if shows_data(frame, at):
            self.pieces += 1
            self._watchdog.progressed(self._wait)

    def payload(self, data: bytes) -> None:
        if out := self._framed(self._pass(data)):
            self._write(out)

    def ended(self, error: BrokenError | None, last: bytes = b"") -> None:
        """Write what came with the end, and the end, in one: each write is a system call."""
        if self._done.done():
            return
        gate, out = self._gate, self._pass(last)
        if error is None and gate is not None and gate.is_cut_off:
            error = BrokenError("the engine process died")
        if error is not None:
            if out := self._framed(out):
                self._write(out)
            self._done.set_exception(error)
            return
        out = self._framed(out if gate is None else out + gate.flush())
        if self._is_chunked:
            out += _END
        if out:
            self._write(out)
        self._client.wind_up(self._finish)

    # What the client's connection calls

    def pause_writing(self) -> None:
        self._wait.is_paused = True
        self._upstream.pause()

    def resume_writing(self) -> None:
        self._watchdog.resumed(self._wait)
        self._upstream.resume()

    def connection_lost(self) -> None:
        """Free the engine at once; the server cancels `run`."""
        self._write = _drop
        self._upstream.close()

    def _finish(self) -> None:
        if not self._done.done():
            self._done.set_result(None)

    def _pass(self, data: bytes) -> bytes:
        """Take note of a piece of the body; return what the client gets now."""
        if not data:
            return b""
        gate = self._gate
        if gate is None or shows_data(data):
            self.pieces += 1
            self._watchdog.progressed(self._wait)
        return data if gate is None else gate.push(data)

    def _framed(self, data: bytes) -> bytes:
        if not data or not self._is_chunked:
            return data
        return b"%x\r\n%b\r\n" % (len(data), data)


def _drop(data: bytes) -> None:
    """Take the place of a client that has left."""
