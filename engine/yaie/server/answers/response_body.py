"""The body of a streamed response, written without waiting.

Waking a task for each token would be most of a stream's cost at thousands of tokens a second. So a
stream writes into a body, in the callback that receives the tokens. The HTTP protocol offers a body
that writes straight to the connection (`yaie.server.web.protocol`, in the scope's extensions).
`SentBody` is used without it: on another ASGI server, or with HTTP/1.0.

A body accepts all bytes. The writer checks `is_full` first, and is called back through `on_room`.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol, Self

from starlette.types import Message, Scope, Send

EXTENSION: Final = "yaie.body"
"""The scope's extension that holds the body of this request's response."""
HIGH_WATER_BYTES: Final = 64 * 1024


class ResponseBody(Protocol):
    """The body that a stream writes into.

    Attributes:
        is_full: the client reads too slowly: the writer should wait.
        on_room: called when it is no longer full.
        written_s: the time of the last write, on the event loop's clock.

    """

    is_full: bool
    on_room: Callable[[], None]
    written_s: float

    def write(self, data: bytes) -> None:
        """Send these bytes as soon as possible. Drop them if the client has left."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *error: object) -> None:
        """Send what is left, unless an error ends the body. Nothing may be written after this."""


class SentBody:
    """Sends ASGI messages from a task of its own; what was written since the last goes in one."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._clock = asyncio.get_running_loop().time
        self._waiting: list[bytes] = []
        self._n_bytes = 0
        self._news = asyncio.Event()
        self._ends = False
        self._task: asyncio.Task[None] | None = None
        self.is_full = False
        self.on_room: Callable[[], None] = nothing
        self.written_s = self._clock()

    def write(self, data: bytes) -> None:
        if data:
            self._waiting.append(data)
            self._n_bytes += len(data)
            self.is_full = self._n_bytes > HIGH_WATER_BYTES
            self.written_s = self._clock()
            self._news.set()

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._pump())
        return self

    async def __aexit__(self, *error: object) -> None:
        self.on_room = nothing
        self._ends = True
        self._news.set()
        failed = error[0] is not None
        if self._task is not None:
            if failed:
                self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=failed)

    async def _pump(self) -> None:
        while self._waiting or not self._ends:
            await self._news.wait()
            self._news.clear()
            data, self._waiting = b"".join(self._waiting), []
            if data:
                await self._send(chunk(data))
            self._n_bytes -= len(data)
            if self.is_full and self._n_bytes <= HIGH_WATER_BYTES:
                self.is_full = False
                self.on_room()


def body_of(scope: Scope, send: Send) -> ResponseBody:
    """Return the body of the response to this request."""
    offered: ResponseBody | None = scope.get("extensions", {}).get(EXTENSION)
    return SentBody(send) if offered is None else offered


def chunk(data: bytes) -> Message:
    """Make an ASGI message with a piece of a response's body; more will follow."""
    return {"type": "http.response.body", "body": data, "more_body": True}


def nothing() -> None:
    """Do nothing: the `on_room` of a body that has no writer."""
