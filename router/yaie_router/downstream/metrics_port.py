"""What the metrics port answers: GET /metrics, without a key, and nothing else.

It is a port of its own so that who may use the models reads nothing about them, and so that a
NetworkPolicy can tell the two apart.
"""

from collections.abc import Callable
from typing import Final

from aiohttp import web

from yaie_api import names
from yaie_api.errors import MethodNotAllowedError, NotFoundError, YaieError
from yaie_api.http.access.gate import Gate
from yaie_router.downstream.answers import error_answer, own_headers
from yaie_router.downstream.bodies.intake import head_of
from yaie_router.upstream.headers import request_id

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class MetricsPort:
    """`render()`: the page. On loopback addresses the `gate` refuses what a web page has caused."""

    def __init__(self, render: Callable[[], bytes]) -> None:
        self._render = render
        self.gate = Gate(with_pages=False)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request: the server's only handler."""
        identity = request_id(request.headers)
        try:
            self._check(request)
        except YaieError as error:
            response = error_answer(error, identity)
            if not request.content.is_eof():
                response.force_close()
            return response
        headers = own_headers(identity) | {"content-type": CONTENT_TYPE}
        return web.Response(body=self._render(), headers=headers)

    def _check(self, request: web.BaseRequest) -> None:
        head = head_of(request)
        self.gate.check(head)
        if head.path != names.PATH_METRICS:
            raise NotFoundError("Only /metrics is on this port.", code="path_not_found")
        if head.method not in ("GET", "HEAD"):
            raise MethodNotAllowedError("Use GET on this path.")
