"""Where the bytes of a streamed response go, written without waiting.

A token's way to its client must not wake a task: at thousands of tokens a second that is most of
what a stream costs. So a stream writes into a body, in whatever callback its tokens have come. The
HTTP protocol offers one that writes straight to the connection (`yaie.server.web.protocol`, in the
scope's extensions); `SentBody` stands in for it where there is none: another ASGI server, or
HTTP/1.0.

A body does not refuse bytes. Who writes asks `is_full` first, and is called back (`on_room`).
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol, Self

from starlette.types import Message, Scope, Send

EXTENSION: Final = "yaie.body"
"""The scope's extension that holds the body of this request's response."""
HIGH_WATER_BYTES: Final = 64 * 1024


class ResponseBody(Protocol):
    """What a stream writes into.

    Attributes:
        is_full: the client reads slower than is written: what is not written yet should wait.
        on_room: called when a body that was full is not full any more.
        written_s: when it was last written to, on the event loop's clock.

    """

    is_full: bool
    on_room: Callable[[], None]
    written_s: float

    def write(self, data: bytes) -> None:
        """Send these bytes as soon as may be. After the client has left, they are dropped."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *error: object) -> None:
        """Everything has been handed on (unless an error ends it); nothing is written after."""


class SentBody:
    """Sends as ASGI messages, from a task of its own, what is written meanwhile in one message."""

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
    """The body of the response to this request."""
    offered: ResponseBody | None = scope.get("extensions", {}).get(EXTENSION)
    return SentBody(send) if offered is None else offered


def chunk(data: bytes) -> Message:
    """Some of a response's body as an ASGI message, with more to come."""
    return {"type": "http.response.body", "body": data, "more_body": True}


def nothing() -> None:
    """Nobody waits for room."""
