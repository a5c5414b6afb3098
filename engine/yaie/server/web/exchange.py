"""One HTTP request at the edge: its headers and body within limits, and its response."""

import asyncio
import contextlib
import re
import time
import uuid
from collections.abc import Iterable
from typing import Final

from starlette.types import Message, Receive, Scope, Send

from yaie.server.figures import Figures
from yaie.server.options import Limits
from yaie.server.request.http import error_response
from yaie_api import names
from yaie_api.errors import (
    InvalidRequestError,
    PayloadTooLargeError,
    UnsupportedEncodingError,
    YaieError,
)
from yaie_api.http import envelopes
from yaie_api.http.access.body import BodyMeter
from yaie_api.http.access.head import Head
from yaie_api.tracing import w3c
from yaie_api.tracing.spans import SpanSink, Trace, begin

Field = tuple[bytes, bytes]
_HEADER_ID: Final = names.HEADER_REQUEST_ID.encode()
_HEADER_USAGE: Final = names.HEADER_USAGE.encode()
_TRACEPARENT: Final = w3c.TRACEPARENT.encode()
_TRACESTATE: Final = w3c.TRACESTATE.encode()
_ANTHROPIC_ID: Final = envelopes.ANTHROPIC_REQUEST_ID.encode()
_ANTHROPIC_VERSION: Final = envelopes.ANTHROPIC_VERSION.encode()
_VALID_ID: Final = re.compile(r"[A-Za-z0-9_.:\-]{1,128}")


class Exchange:
    """One request, and what has been received and sent for it. `more_headers`: for its answer."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, limits: Limits) -> None:
        self.scope = scope
        self.path: str = scope["path"]
        self.started_s = time.monotonic()
        self.figures = Figures()
        self.status = 0
        self.trace: Trace | None = None
        self.more_headers: dict[str, str] = {}
        self._receive = receive
        self._send = send
        self._limits = limits
        self._meter = BodyMeter(limits.body)
        self._body_complete = False
        self._lingers = False
        self._owes_usage = False
        self.head = Head(scope["method"], self.path, scope["headers"])
        given = self.head.header(_HEADER_ID)
        self.id = given if _VALID_ID.fullmatch(given) else uuid.uuid4().hex

    def begin_trace(self, sink: SpanSink | None) -> Trace | None:
        """Join the trace of the client, or begin one if traces are made here."""
        parents = self._values(_TRACEPARENT)
        if sink is None and not parents:
            return None
        states = self._values(_TRACESTATE) if parents else []
        self.trace = begin(f"{self.scope['method']} {self.path}", parents, states, sink)
        return self.trace

    def _values(self, name: bytes) -> list[str]:
        return [v.decode("latin-1") for n, v in self.scope["headers"] if n == name]

    @property
    def route(self) -> str:
        """The matched route, not the raw path: metrics and logs need few distinct values."""
        route = self.scope.get("route")
        return str(getattr(route, "path", "unmatched"))

    @property
    def _is_chunked(self) -> bool:
        return any(name == b"transfer-encoding" for name, _ in self.scope["headers"])

    def check_declared_size(self) -> None:
        """Check the headers and the declared size of the body, before any of it is read.

        Raises:
            InvalidRequestError: both Content-Length and Transfer-Encoding are given.
            PayloadTooLargeError: there are too many headers, or they or the body are too large.

        """
        headers = self.scope["headers"]
        size = sum(len(name) + len(value) for name, value in headers)
        if len(headers) > self._limits.headers or size > self._limits.header_bytes:
            raise PayloadTooLargeError("The request has too many or too large headers.")
        if self._is_chunked and b"content-length" in (name for name, _ in headers):
            # They may say two lengths, and a proxy before this server may have used the other.
            raise InvalidRequestError("Give Content-Length or Transfer-Encoding, not both.")
        declared = self.head.header(b"content-length")
        if declared.isdigit():
            self._meter.declare(int(declared))

    def check_encoding(self) -> None:
        """Refuse a compressed body.

        Raises:
            UnsupportedEncodingError: Content-Encoding names a compression.

        """
        given = [v.strip().lower() for n, v in self.scope["headers"] if n == b"content-encoding"]
        if not set(given) <= {b"", b"identity"}:
            raise UnsupportedEncodingError(
                "The request body is compressed; send it as it is, without Content-Encoding."
            )

    async def receive(self) -> Message:
        """Receive the next part of the body, within the limits of size and time.

        Raises:
            BodyTimeoutError: the body came too slowly.
            PayloadTooLargeError: the body is larger than the limit.

        """
        if self._body_complete:
            return await self._receive()
        try:
            # Python 3.11's wait_for would lose a cancellation that comes together with the message.
            async with asyncio.timeout(self._meter.left_s()):
                message = await self._receive()
        except TimeoutError:
            raise self._meter.too_slow() from None
        self._meter.add(len(message.get("body", b"")))
        self._body_complete = not message.get("more_body", False)
        return message

    async def send(self, message: Message) -> None:
        """Send a message of the response, with the request's id in its headers.

        If the answer comes before the whole body, the connection ends with it, a little later: one
        that is closed with unread data is reset, and the client may not read the answer. A router
        that asks is told what the request took: in a header or, of a stream, before its last piece.
        """
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message = {**message, "headers": await self._headers(message.get("headers", ()))}
        elif not message.get("more_body", False):
            if self._owes_usage and (usage := self.figures.usage) is not None:
                message = {**message, "body": usage.comment() + message.get("body", b"")}
            if self._lingers:
                await self._send({**message, "more_body": True})
                await self._discard_body(self._limits.linger_s)
                message = {"type": "http.response.body", "body": b""}
        await self._send(message)

    async def _headers(self, given: Iterable[Field]) -> list[Field]:
        headers = [*given, (_HEADER_ID, self.id.encode())]
        if self._is_anthropic():
            headers.append((_ANTHROPIC_ID, self.id.encode()))
        headers += [(n.encode(), v.encode("latin-1")) for n, v in self.more_headers.items()]
        if not await self._body_is_here():
            self._lingers = True
            headers.append((b"connection", b"close"))
        if self.head.header(_HEADER_USAGE) == "1":
            usage = self.figures.usage
            if usage is not None:
                headers.append((_HEADER_USAGE, usage.header()))
            self._owes_usage = usage is None and _is_events(headers)
        return headers

    async def _body_is_here(self) -> bool:
        """Whether the whole body has come. What is here is dropped: the answer does not need it."""
        if self._body_complete:
            return True
        if self.head.header(b"content-length") in ("", "0") and not self._is_chunked:
            self._body_complete = True
        elif not self.head.header(b"expect"):
            # Such a client waits, before it sends its body, for a word that receiving would say.
            await self._discard_body(0.0)
        return self._body_complete

    async def _discard_body(self, seconds: float) -> None:
        """Read and drop the body: what comes of it within the time, and within a limit."""
        left = self._limits.linger_bytes
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while left > 0 and not self._body_complete:
                    message = await self._receive()
                    left -= len(message.get("body", b"")) + 1
                    self._body_complete = not message.get("more_body", False)

    def _is_anthropic(self) -> bool:
        """Whether the client is one of Anthropic's, which look for the id in another header."""
        if self.path.startswith(envelopes.ANTHROPIC_PATH):
            return True
        listing = self.path.startswith(envelopes.MODELS_PATH)
        return listing and bool(self.head.header(_ANTHROPIC_VERSION))

    async def fail(self, error: YaieError) -> None:
        """Answer with the error, unless the response has begun: then it is only cut off."""
        if self.status:
            return
        await error_response(error, self.path)(self.scope, self._receive, self.send)


def _is_events(headers: Iterable[Field]) -> bool:
    return any(n == b"content-type" and v.startswith(b"text/event-stream") for n, v in headers)
