"""The FastAPI application: it routes requests, and turns every error into OpenAI's envelope.

Handlers take the raw request: msgspec decodes the body and the wire types of `yaie_api` check it,
so FastAPI only routes.
"""

from collections.abc import Sequence

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from yaie.server.options import Limits
from yaie.server.request.http import error_response, left_response
from yaie.server.routes import ENDPOINTS, Endpoint
from yaie.server.service import Service
from yaie.server.web import openapi, wrong_paths
from yaie.server.web.edge import Edge
from yaie.server.web.pages import add_pages
from yaie_api import __version__
from yaie_api.errors import EngineError, InvalidRequestError, YaieError
from yaie_api.http.access.gate import Gate


def create_app(
    service: Service,
    *,
    endpoints: Sequence[Endpoint] = ENDPOINTS,
    gate: Gate | None = None,
    limits: Limits | None = None,
    with_pages: bool = False,
) -> Edge:
    """Make the ASGI application of a service. `gate` and `limits` are those of `Edge`."""
    app = FastAPI(
        title="yaie engine",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.service = service
    app.add_exception_handler(YaieError, _on_error)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(ClientDisconnect, _on_leaving)
    app.add_exception_handler(Exception, _on_crash)
    _add_routes(app, endpoints)
    if with_pages:
        add_pages(app)
    return Edge(app, service.metrics, gate=gate, limits=limits, spans=service.spans)


def _add_routes(app: FastAPI, endpoints: Sequence[Endpoint]) -> None:
    for one in endpoints:
        for path in one.paths:
            methods: list[str] = ["GET", "HEAD"] if one.method == "GET" else [one.method]
            app.add_api_route(path, one.handler, methods=methods, response_model=None)
    described = openapi.document(endpoints)
    app.openapi = lambda: described  # type: ignore[method-assign]  # FastAPI's own way to set it


async def _on_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, YaieError):
        raise error
    return error_response(error, request.url.path)


async def _on_leaving(request: Request, error: Exception) -> Response:
    """Handle a client that left before its request was complete."""
    del request, error
    return left_response()


async def _on_crash(request: Request, error: Exception) -> Response:
    """Answer after a bug of this server. Starlette raises the error again, and `Edge` logs it."""
    del error
    failure = EngineError("The request failed. Its id is in the headers.")
    return error_response(failure, request.url.path)


async def _on_http_exception(request: Request, error: Exception) -> Response:
    """Answer the router's 404 and 405 in the envelope of all errors."""
    if not isinstance(error, HTTPException):
        raise error
    ours: YaieError = InvalidRequestError(str(error.detail))
    headers = dict(error.headers or {})
    if error.status_code == 404:
        ours = wrong_paths.unknown_path(request)
    elif error.status_code == 405:
        ours, headers = wrong_paths.wrong_method(request)
    response = error_response(ours, request.url.path)
    response.headers.update(headers)
    return response
