"""Server-sent events: the response that sends a stream's chunks.

`[DONE]` ends every stream, also after an error event. Comments keep a silent stream open while its
request waits or its prompt is computed. When the client leaves, the generator is cancelled, and
with it the generation.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable
from contextlib import aclosing
from typing import Any, Final, Self, TypeVar

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from yaie.server.openai.chunks import json_bytes
from yaie_api.errors import EngineError, YaieError

log = logging.getLogger(__name__)

DONE: Final = b"data: [DONE]\n\n"
PING: Final = b": ping\n\n"

T = TypeVar("T")


def error_event(error: YaieError) -> bytes:
    return b"data: " + json_bytes(error.envelope()) + b"\n\n"


class EventStream(Response):
    """A response that sends the events of `chunks` until they end or the client leaves.

    An error of the tree becomes an error event; any other one too, with a log record and without
    its details. `[DONE]` follows in every case. `done`: what ends the stream; b"" where the
    protocol has no such event. `ping_s`: a comment is sent after this long without an event; 0:
    never.
    """

    def __init__(
        self, chunks: AsyncGenerator[bytes], *, ping_s: float = 0.0, done: bytes = DONE
    ) -> None:
        super().__init__()
        self._chunks = chunks
        self._ping_s = ping_s
        self._done = done

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope
        await until_disconnect(receive, self._send_all(send))

    async def _send_all(self, send: Send) -> None:
        async with aclosing(self._chunks) as chunks, _Pings(send, self._ping_s) as pings:
            await send(_START)
            try:
                async for chunk in chunks:
                    await pings.send(_body(chunk))
            except YaieError as error:
                await pings.send(_body(error_event(error)))
            except Exception:
                log.exception("stream failed")
                await pings.send(_body(error_event(EngineError("The request failed."))))
        await send({"type": "http.response.body", "body": self._done, "more_body": False})


class _Pings:
    """Sends a comment whenever nothing was sent for `interval_s`; two sends never overlap."""

    def __init__(self, send: Send, interval_s: float) -> None:
        self.send = self._send_noted if interval_s else send
        self._send = send
        self._interval_s = interval_s
        self._lock = asyncio.Lock()
        self._sent_s = 0.0
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        if self._interval_s:
            self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._task is not None:
            await _cancel(self._task)

    async def _send_noted(self, message: Message) -> None:
        async with self._lock:
            await self._send(message)
            self._sent_s = asyncio.get_running_loop().time()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        self._sent_s = loop.time()
        while True:
            silence_s = loop.time() - self._sent_s
            if silence_s >= self._interval_s:
                await self._send_noted(_body(PING))
                silence_s = 0.0
            await asyncio.sleep(self._interval_s - silence_s)


_START: Final[Message] = {
    "type": "http.response.start",
    "status": 200,
    "headers": [
        (b"content-type", b"text/event-stream; charset=utf-8"),
        (b"cache-control", b"no-cache"),
        (b"x-accel-buffering", b"no"),
    ],
}


def _body(chunk: bytes) -> Message:
    return {"type": "http.response.body", "body": chunk, "more_body": True}


async def until_disconnect(receive: Receive, work: Awaitable[T]) -> T | None:
    """The result of `work`, or None when the client left first and the work was cancelled."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            log.info("client left")
            return None
        return await task
    finally:
        await _cancel(task, gone)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue


async def _cancel(*tasks: "asyncio.Future[Any]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
