"""The head of a request as bytes, and bytes as the head of an answer. Pure.

aiohttp's C parser (llhttp) reads heads; it refuses two lengths, a length beside chunks, and headers
that are too many or too large.
"""

import asyncio
import re
from collections.abc import Iterable
from typing import Final

import msgspec
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import HttpResponseParser
from multidict import CIMultiDictProxy

from yaie_router.upstream.http1.framing import Body, Chunked, FramingError, Length, UntilClosed

MOST_HEAD_BYTES: Final = 64 << 10
_END: Final = re.compile(rb"\n\r?\n")
_BEGINNING: Final = b"HTTP/1."
_UNSAFE_TARGET: Final = re.compile(r"[^!-~]")
_NO_BODY: Final = (204, 304)
_SWITCHING: Final = 101
_OK: Final = 200


class ResponseHead(msgspec.Struct, frozen=True):
    """An answer's head. `body`: what is to follow. `keeps_open`: the connection may be used again,
    if nothing else speaks against it. `is_events`: the body is a stream of events.
    """

    status: int
    reason: str
    headers: CIMultiDictProxy[str]
    body: Body
    keeps_open: bool
    is_events: bool


def request_head(
    method: str, target: str, host: str, headers: Iterable[tuple[str, str]], size: int
) -> bytes:
    """Return the head of a request whose body has `size` bytes.

    Raises:
        ValueError: the target or a header would end before its end.

    """
    if _UNSAFE_TARGET.search(target):
        msg = "a target has characters that a request line cannot have"
        raise ValueError(msg)
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}"]
    lines += [f"{name}: {value}" for name, value in headers]
    if size or method == "POST":
        lines.append(f"Content-Length: {size}")
    head = "\r\n".join((*lines, "", ""))
    breaks = len(lines) + 1
    if not breaks == head.count("\r") == head.count("\n") or "\0" in head:
        msg = "a header has a line break"
        raise ValueError(msg)
    return head.encode("utf-8", "surrogateescape")


def head_end(data: bytes) -> int:
    """Return where the head ends, 0: it is not whole.

    Raises:
        FramingError: this is no head, or a huge one.

    """
    if data[: len(_BEGINNING)] != _BEGINNING[: len(data)]:
        raise FramingError("this is not HTTP/1")
    found = _END.search(data)
    if len(data) > MOST_HEAD_BYTES and (found is None or found.end() > MOST_HEAD_BYTES):
        raise FramingError("the head is too large")
    return 0 if found is None else found.end()


def parse_head(data: bytes, loop: asyncio.AbstractEventLoop) -> ResponseHead:
    """Read a whole head.

    Raises:
        FramingError: it is none.

    """
    parser = HttpResponseParser(
        BaseProtocol(loop), loop, 0, response_with_body=False, auto_decompress=False
    )
    try:
        messages, _, _ = parser.feed_data(data)
    except HttpProcessingError as error:
        raise FramingError(str(error)) from error
    if not messages or (message := messages[0][0]).code == _SWITCHING:
        raise FramingError("this is no head of an answer")
    body: Body
    if message.code < _OK or message.code in _NO_BODY:
        body = Length(0)
    elif message.chunked:
        body = Chunked()
    elif (size := message.headers.get("content-length")) is not None:
        body = Length(int(size))
    else:
        body = UntilClosed()
    is_last = message.should_close or isinstance(body, UntilClosed)
    kind = message.headers.get("content-type", "").partition(";")[0].strip().lower()
    return ResponseHead(
        message.code,
        message.reason,
        message.headers,
        body,
        keeps_open=not is_last,
        is_events=kind == "text/event-stream",
    )
