"""The response that streams server-sent events.

`[DONE]` ends every stream, also after an error event. Comments keep the connection open while the
request is queued or its prompt is computed. If the client leaves, the stream's task is cancelled,
and with it the generation. The task only begins and ends the response. The events are written in
the callbacks that receive tokens: `chunks` encodes them, `server.web.protocol.DirectBody` sends
them.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Self, TypeVar

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from yaie.server.answers.chunks import json_bytes
from yaie.server.answers.replay import EMPTY_NOTE, Recorder
from yaie.server.answers.response_body import ResponseBody, body_of
from yaie_api.errors import EngineError, YaieError
from yaie_api.http.replay import CAN_REPLAY
from yaie_api.names import HEADER_REPLAY

log = logging.getLogger(__name__)

DONE: Final = b"data: [DONE]\n\n"
PING: Final = b": ping\n\n"

T = TypeVar("T")
Writer = Callable[[ResponseBody], Awaitable[None]]
"""Writes all events of a stream; it returns after the last one, or raises."""


def error_event(error: YaieError) -> bytes:
    return b"data: " + json_bytes(error.envelope()) + b"\n\n"


class EventStream(Response):
    """A response that sends what `write` writes, until it returns or the client leaves.

    A `YaieError` becomes an error event. Any other error does too, without its details, and is
    logged. `done` follows in every case; b"" if the API has no such event. `ping_s`: a comment is
    sent after this long without an event; 0: never. `headers`: further headers. `recorder`: of a
    stream that another engine can continue.
    """

    def __init__(
        self,
        write: Writer,
        *,
        ping_s: float = 0.0,
        done: bytes = DONE,
        headers: Mapping[str, str] | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        super().__init__()
        self._more = [(k.encode(), v.encode("latin-1")) for k, v in (headers or {}).items()]
        self._recorder = recorder
        if recorder is not None:
            self._more.append((HEADER_REPLAY.encode(), CAN_REPLAY.encode()))
        self._write = write
        self._ping_s = ping_s
        self._done = done

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await until_disconnect(receive, self._send_all(body_of(scope, send), send))

    async def _send_all(self, body: ResponseBody, send: Send) -> None:
        await send({**_START, "headers": [*_START["headers"], *self._more]})
        recorder = self._recorder
        ping = PING if recorder is None else PING + EMPTY_NOTE
        async with body:
            with _Pings(body, self._ping_s, ping):
                await self._write_all(body if recorder is None else recorder.body(body))
        await send({"type": "http.response.body", "body": self._done, "more_body": False})

    async def _write_all(self, body: ResponseBody) -> None:
        try:
            await self._write(body)
        except YaieError as error:
            body.write(error_event(error))
        except Exception:
            log.exception("stream failed")
            body.write(error_event(EngineError("The request failed.")))
        finally:
            if self._recorder is not None:
                self._recorder.close()


class _Pings:
    """Writes a comment whenever nothing has been written for `interval_s`."""

    def __init__(self, body: ResponseBody, interval_s: float, ping: bytes = PING) -> None:
        self._body = body
        self._ping = ping
        self._interval_s = interval_s
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        if self._interval_s:
            self._body.written_s = self._loop.time()
            self._look()
        return self

    def __exit__(self, *error: object) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        """Write a comment if one is due, and look again when the next one could be."""
        now = self._loop.time()
        if now - self._body.written_s >= self._interval_s:
            if not self._body.is_full:
                self._body.write(self._ping)
            self._body.written_s = now
        self._timer = self._loop.call_at(self._body.written_s + self._interval_s, self._look)


_START: Final[Message] = {
    "type": "http.response.start",
    "status": 200,
    "headers": [
        (b"content-type", b"text/event-stream; charset=utf-8"),
        (b"cache-control", b"no-cache"),
        (b"x-accel-buffering", b"no"),
    ],
}


async def until_disconnect(receive: Receive, work: Awaitable[T]) -> T | None:
    """Return the result of `work`; None: the client left first, and the work was cancelled."""
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
