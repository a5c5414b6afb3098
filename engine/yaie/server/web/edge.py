"""The ASGI middleware around the application: request ids, keys, limits, errors, the access log.

Every response passes here, so each has its request id, and every error has the same envelope.
Access is denied by default: only the paths in `OPEN_PATHS` and the static pages need no key. They
are compared with the path that the application's router will see.
"""

import hashlib
import hmac
import logging
import time
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from yaie.server.metrics import ServerMetrics
from yaie.server.options import Limits
from yaie.server.request.http import STATUS_CLIENT_LEFT
from yaie.server.web.exchange import Exchange
from yaie.server.web.pages import is_page
from yaie_api import names
from yaie_api.errors import (
    AuthenticationError,
    EngineError,
    YaieError,
)
from yaie_api.http.access.origin import check_local
from yaie_api.logs import fields, request_id

log = logging.getLogger("yaie.access")

OPEN_PATHS: Final = frozenset({names.PATH_LIVE, names.PATH_READY, "/health", "/ping"})
QUIET_PATHS: Final = OPEN_PATHS | {names.PATH_METRICS}
"""Not logged with status 200 or 503: probes and scrapes come every few seconds."""


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
        try:
            await self._serve(exchange)
        finally:
            self._record(exchange)
            request_id.reset(token)

    async def _serve(self, exchange: Exchange) -> None:
        try:
            self._check_key(exchange)
            if self._check_origin:
                check_local(exchange.text_header(b"host"), exchange.text_header(b"origin"))
            exchange.check_declared_size()
            exchange.check_encoding()
            await self._app(exchange.scope, exchange.receive, exchange.send)
        except YaieError as error:
            await exchange.fail(error)
        except Exception:
            log.exception("request failed")
            await exchange.fail(EngineError("The request failed. Its id is in the headers."))

    def _check_key(self, exchange: Exchange) -> None:
        if not self._key_digests or exchange.path in OPEN_PATHS:
            return
        if self._with_pages and is_page(exchange.scope):
            return
        given = _digest(exchange.key)
        # Compare with every key, so that the time taken does not depend on which one matches.
        matches = [hmac.compare_digest(given, digest) for digest in self._key_digests]
        if not any(matches):
            raise AuthenticationError("A valid API key is required: Authorization: Bearer KEY.")

    def _record(self, exchange: Exchange) -> None:
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
                seconds=round(time.monotonic() - exchange.started_s, 4),
            ),
        )


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
