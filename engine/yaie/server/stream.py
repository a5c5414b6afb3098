"""Server-sent events: the bytes of a stream, and the response that sends them.

Each stream encodes the unchanging part of its chunks once; a chunk is then two joins. The role is
sent once, the last chunk of a choice carries its finish_reason, usage comes with `choices: []`, and
`[DONE]` ends every stream, also after an error event. When the client leaves, the generator is
cancelled, and with it the generation.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable
from contextlib import aclosing
from typing import Any, Final, Literal, TypeVar

import msgspec
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from yaie_api.errors import EngineError, YaieError
from yaie_api.openai import Usage

log = logging.getLogger(__name__)

DONE: Final = b"data: [DONE]\n\n"
_json: Final = msgspec.json.Encoder().encode
_LINE_BREAKS: Final = str.maketrans({"\u2028": "\\u2028", "\u2029": "\\u2029", "\x85": "\\u0085"})
"""Line ends to some clients' event parsers, plain characters to JSON: escape them."""

T = TypeVar("T")
Kind = Literal["chat.completion.chunk", "text_completion"]


class ChunkEncoder:
    """Bytes of the chunks of one choice of one stream."""

    def __init__(
        self, kind: Kind, answer_id: str, created: int, model: str, *, index: int = 0
    ) -> None:
        self._chat = kind == "chat.completion.chunk"
        head = {"id": answer_id, "object": kind, "created": created, "model": model}
        self._head = b"data: " + _json(head)[:-1]
        self._choice = self._head + b',"choices":[{"index":%d,' % index
        self._text = self._choice + (b'"delta":{"content":' if self._chat else b'"text":')
        self._plain_tail = (b"}" if self._chat else b"") + b',"logprobs":null,"finish_reason":'

    def role(self, *, usage: bytes = b"") -> bytes:
        """The first chunk of a chat choice: who speaks, and an empty text. `usage`: see `text`."""
        delta = b'"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null'
        return b"".join((self._choice, delta, b"}]", usage, b"}\n\n"))

    def text(
        self,
        text: str,
        finish_reason: str | None = None,
        *,
        stop_reason: str | int | None = None,
        usage: bytes = b"",
    ) -> bytes:
        """A piece of text; the last piece says why the choice ended. `usage`: see `usage_field`."""
        end = b"null" if finish_reason is None else b'"%b"' % finish_reason.encode()
        if stop_reason is not None:
            end += b',"stop_reason":' + _json(stop_reason)
        return b"".join(
            (self._text, encode_text(text), self._plain_tail, end, b"}]", usage, b"}\n\n")
        )

    def usage(self, usage: Usage) -> bytes:
        """The chunk before `[DONE]`: no choices, only numbers."""
        return self._head + b',"choices":[]' + usage_field(usage) + b"}\n\n"


def usage_field(usage: Usage | None) -> bytes:
    """`,"usage":…` to put into a chunk."""
    return b',"usage":null' if usage is None else b',"usage":' + _json(usage.wire())


def encode_text(text: str) -> bytes:
    encoded = _json(text)
    if text.isascii():
        return encoded
    return encoded.decode().translate(_LINE_BREAKS).encode()


def error_event(error: YaieError) -> bytes:
    return b"data: " + _json(error.envelope()) + b"\n\n"


class EventStream(Response):
    """A response that sends the events of `chunks` until they end or the client leaves.

    An error of the tree becomes an error event; any other one too, with a log record and without
    its details. `[DONE]` follows in every case.
    """

    def __init__(self, chunks: AsyncGenerator[bytes]) -> None:
        super().__init__()
        self._chunks = chunks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope
        await until_disconnect(receive, self._send_all(send))

    async def _send_all(self, send: Send) -> None:
        async with aclosing(self._chunks) as chunks:
            await send(_START)
            try:
                async for chunk in chunks:
                    await send(_body(chunk))
            except YaieError as error:
                await send(_body(error_event(error)))
            except Exception:
                log.exception("stream failed")
                await send(_body(error_event(EngineError("The request failed."))))
            await send({"type": "http.response.body", "body": DONE, "more_body": False})


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
