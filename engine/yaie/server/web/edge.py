"""The ASGI middleware around the application: request ids, keys, limits, errors, the access log.

Every response passes here, so each has its request id, and every error has the same envelope.
Access is denied by default: only the paths in `OPEN_PATHS` and the static pages need no key. They
are compared with the path that the application's router will see.
"""

import asyncio
import contextlib
import hashlib
import hmac
import logging
import re
import time
import uuid
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from yaie.server import figures
from yaie.server.headers import key_of
from yaie.server.metrics import ServerMetrics
from yaie.server.options import Limits
from yaie.server.request.http import STATUS_CLIENT_LEFT, error_response
from yaie.server.web.pages import is_page
from yaie_api import names
from yaie_api.errors import (
    AuthenticationError,
    EngineError,
    InvalidRequestError,
    PayloadTooLargeError,
    UnsupportedEncodingError,
    YaieError,
)
from yaie_api.http.origin import check_local
from yaie_api.logs import fields, request_id

log = logging.getLogger("yaie.access")

OPEN_PATHS: Final = frozenset({names.PATH_LIVE, names.PATH_READY, "/health", "/ping"})
QUIET_PATHS: Final = OPEN_PATHS | {names.PATH_METRICS}
"""Not logged with status 200 or 503: probes and scrapes come every few seconds."""

_HEADER_ID: Final = names.HEADER_REQUEST_ID.encode()
_VALID_ID: Final = re.compile(r"[A-Za-z0-9_.:\-]{1,128}")


class Edge:
    """Wraps `app`. `api_keys`: those that are accepted; empty: no key is needed. `local_only`: if
    no key is needed, refuse requests that a web page of another machine may have caused.
    `with_pages`: the application has the static pages.
    """

    def __init__(
        self,
        app: ASGIApp,
        metrics: ServerMetrics,
        *,
        api_keys: tuple[str, ...] = (),
        limits: Limits | None = None,
        local_only: bool = False,
        with_pages: bool = False,
    ) -> None:
        self._app = app
        self._check_origin = local_only and not api_keys
        self._with_pages = with_pages
        self._metrics = metrics
        self._key_digests = tuple(_digest(key.encode()) for key in api_keys)
        self._limits = limits or Limits()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = Exchange(scope, receive, send, self._limits)
        token = request_id.set(exchange.id)
        taken = figures.current.set(exchange.figures)
        try:
            await self._serve(exchange)
        finally:
            self._record(exchange)
            figures.current.reset(taken)
            request_id.reset(token)

    async def _serve(self, exchange: "Exchange") -> None:
        try:
            self._check_key(exchange)
            if self._check_origin:
                check_local(exchange.text_header(b"host"), exchange.text_header(b"origin"))
            exchange.check_declared_size()
            exchange.check_encoding()
            await self._app(exchange.scope, exchange.receive, exchange.send)
        except (PayloadTooLargeError, UnsupportedEncodingError) as error:
            await exchange.refuse_body(error)
        except YaieError as error:
            await exchange.fail(error)
        except Exception:
            log.exception("request failed")
            await exchange.fail(EngineError("The request failed. Its id is in the headers."))

    def _check_key(self, exchange: "Exchange") -> None:
        if not self._key_digests or exchange.path in OPEN_PATHS:
            return
        if self._with_pages and is_page(exchange.scope):
            return
        given = _digest(exchange.key)
        # Compare with every key, so that the time taken does not depend on which one matches.
        matches = [hmac.compare_digest(given, digest) for digest in self._key_digests]
        if not any(matches):
            raise AuthenticationError("A valid API key is required: Authorization: Bearer KEY.")

    def _record(self, exchange: "Exchange") -> None:
        status = exchange.status or STATUS_CLIENT_LEFT
        route = exchange.route
        self._metrics.answered(route, status)
        if exchange.path in QUIET_PATHS and status in (200, 503):
            return
        log.info(
            "request",
            extra=fields(
                method=exchange.scope["method"],
                path=route,
                status=status,
                **exchange.figures.as_fields(),
                seconds=round(time.monotonic() - exchange.started_s, 4),
            ),
        )


class Exchange:
    """One request, and what has been received and sent for it."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, limits: Limits) -> None:
        self.scope = scope
        self.path: str = scope["path"]
        self.started_s = time.monotonic()
        self.figures = figures.Figures()
        self.status = 0
        self._receive = receive
        self._send = send
        self._limits = limits
        self._body_left = limits.body_bytes
        self._body_complete = False
        given = self.text_header(_HEADER_ID)
        self.id = given if _VALID_ID.fullmatch(given) else uuid.uuid4().hex

    @property
    def route(self) -> str:
        """The matched route, not the raw path: metrics and logs need few distinct values."""
        route = self.scope.get("route")
        return str(getattr(route, "path", "unmatched"))

    @property
    def key(self) -> bytes:
        """The client's API key; b"": it has none, or sends the header twice, so that a proxy might
        have checked the other one.
        """
        shown = [n for n, _ in self.scope["headers"] if n in (b"authorization", b"x-api-key")]
        if len(shown) > len(set(shown)):
            return b""
        key = key_of(self.text_header(b"authorization"), self.text_header(b"x-api-key"))
        return key.encode("latin-1")

    def header(self, name: bytes) -> bytes:
        values: list[bytes] = [v for n, v in self.scope["headers"] if n == name]
        return values[0] if len(values) == 1 else b""

    def text_header(self, name: bytes) -> str:
        return self.header(name).decode("latin-1")

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
        if {b"transfer-encoding", b"content-length"} <= {name for name, _ in headers}:
            # They may say two lengths, and a proxy before this server may have used the other.
            raise InvalidRequestError("Give Content-Length or Transfer-Encoding, not both.")
        declared = self.header(b"content-length")
        if declared.isdigit() and int(declared) > self._limits.body_bytes:
            raise self._too_large()

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
            InvalidRequestError: the body came too slowly.
            PayloadTooLargeError: the body is larger than the limit.

        """
        if self._body_complete:
            return await self._receive()
        left_s = self._limits.body_s - (time.monotonic() - self.started_s)
        try:
            # Python 3.11's wait_for would lose a cancellation that comes together with the message.
            async with asyncio.timeout(max(left_s, 0.0)):
                message = await self._receive()
        except TimeoutError:
            raise InvalidRequestError("The request body came too slowly.") from None
        self._body_left -= len(message.get("body", b""))
        if self._body_left < 0:
            raise self._too_large()
        self._body_complete = not message.get("more_body", False)
        return message

    async def refuse_body(self, error: YaieError) -> None:
        """Answer at once, then read and drop the rest of the body. A connection that is closed with
        unread data is reset, and the client may not read the answer.
        """
        if self.status:
            return
        response = error_response(error, self.path)
        headers = [*response.raw_headers, (b"connection", b"close")]
        status = {"type": "http.response.start", "status": response.status_code}
        await self.send({**status, "headers": headers})
        body = {"type": "http.response.body", "body": bytes(response.body), "more_body": True}
        await self.send(body)
        await self._discard_body()
        await self.send({"type": "http.response.body", "body": b""})

    async def _discard_body(self) -> None:
        """Read and drop the rest of the body, within limits."""
        left = self._limits.discard_bytes
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._limits.body_s):
                while left > 0 and not self._body_complete:
                    message = await self._receive()
                    left -= len(message.get("body", b"")) + 1
                    self._body_complete = not message.get("more_body", False)

    async def send(self, message: Message) -> None:
        """Send a message of the response, with the request's id in its headers."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = [*message.get("headers", ()), (_HEADER_ID, self.id.encode())]
            message = {**message, "headers": headers}
        await self._send(message)

    async def fail(self, error: YaieError) -> None:
        """Answer with the error, unless the response has begun: then it is only cut off."""
        if self.status:
            return
        await error_response(error, self.path)(self.scope, self._receive, self.send)

    def _too_large(self) -> PayloadTooLargeError:
        return PayloadTooLargeError(
            f"The request body is larger than {self._limits.body_bytes} bytes."
        )


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
