"""The application: routes, and the seam where every error becomes OpenAI's envelope.

Handlers take the raw request: bodies are decoded by msgspec and checked by `yaie_api.openai`, so
FastAPI only routes and publishes the schema.
"""

from typing import Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from yaie.server import health
from yaie.server.chat import chat_completions
from yaie.server.completions import completions
from yaie.server.edge import Edge, Limits
from yaie.server.http import error_response, json_response, service_of
from yaie.server.metrics import CONTENT_TYPE
from yaie.server.service import Service
from yaie.server.tokenize import detokenize, tokenize
from yaie_api import __version__, names
from yaie_api.errors import EngineError, NotFoundError, YaieError
from yaie_api.openai import (
    ChatCompletionRequest,
    CompletionRequest,
    DetokenizeRequest,
    TokenizeRequest,
)


def create_app(
    service: Service,
    *,
    api_keys: tuple[str, ...] = (),
    limits: Limits | None = None,
    local_only: bool = False,
) -> Edge:
    """The complete ASGI application for a service. The keywords are those of `Edge`."""
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
    app.add_exception_handler(Exception, _on_crash)
    _add_routes(app)
    return Edge(app, service.metrics, api_keys=api_keys, limits=limits, local_only=local_only)


def _add_routes(app: FastAPI) -> None:
    for path, handler, body in (
        ("/v1/chat/completions", chat_completions, ChatCompletionRequest),
        ("/v1/completions", completions, CompletionRequest),
        ("/tokenize", tokenize, TokenizeRequest),
        ("/detokenize", detokenize, DetokenizeRequest),
    ):
        content = {"application/json": {"schema": body.model_json_schema()}}
        app.add_api_route(
            path,
            handler,
            methods=["POST"],
            response_model=None,
            openapi_extra={"requestBody": {"required": True, "content": content}},
        )
    for path, handler in (
        ("/v1/models", models),
        ("/v1/models/{model:path}", model_by_name),
        (names.PATH_LIVE, health.livez),
        (names.PATH_READY, health.readyz),
        ("/health", health.readyz),
        (names.PATH_METRICS, metrics),
        ("/version", version),
    ):
        app.add_api_route(path, handler, methods=["GET"], response_model=None)


async def models(request: Request) -> Response:
    service = service_of(request)
    return json_response({"object": "list", "data": [_card(service, n) for n in service.names]})


async def model_by_name(request: Request) -> Response:
    service = service_of(request)
    return json_response(_card(service, service.check_model(request.path_params["model"])))


def _card(service: Service, name: str) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": service.created,
        "owned_by": "yaie",
        "root": service.names[0],
        "parent": None,
        "max_model_len": service.info.max_model_len,
    }


async def metrics(request: Request) -> Response:
    return Response(service_of(request).metrics.render(), media_type=CONTENT_TYPE)


async def version(request: Request) -> Response:
    del request
    return json_response({"version": __version__})


async def _on_error(request: Request, error: Exception) -> Response:
    del request
    if not isinstance(error, YaieError):
        raise error
    return error_response(error)


async def _on_crash(request: Request, error: Exception) -> Response:
    """The answer to a defect of ours. The error itself goes on to `Edge`, which logs it."""
    del request, error
    return error_response(EngineError("The request failed. Its id is in the headers."))


async def _on_http_exception(request: Request, error: Exception) -> Response:
    """404 and 405 of the router, in our envelope."""
    if not isinstance(error, HTTPException):
        raise error
    if error.status_code == 404:
        return error_response(NotFoundError("No such path.", code="path_not_found"))
    body = {
        "message": f"{request.method} is not allowed here."
        if error.status_code == 405
        else str(error.detail),
        "type": "invalid_request_error",
        "param": None,
        "code": "method_not_allowed" if error.status_code == 405 else None,
    }
    return json_response({"error": body}, error.status_code, dict(error.headers or {}))
