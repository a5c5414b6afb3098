"""The router's own answers: JSON bodies and errors in their envelope, with their headers."""

import json
from typing import Any

from aiohttp import web

from yaie_api.errors import YaieError
from yaie_api.http import envelopes
from yaie_api.names import HEADER_REQUEST_ID


def json_answer(body: dict[str, Any], request_id: str, status: int = 200) -> web.Response:
    """Make a JSON response of the router itself."""
    return web.Response(
        status=status,
        body=json.dumps(body, ensure_ascii=False).encode("utf-8", "replace"),
        content_type="application/json",
        headers=own_headers(request_id),
    )


def anthropic_answer(body: dict[str, Any], request_id: str) -> web.Response:
    """Make a JSON response for a client of Anthropic's."""
    response = json_answer(body, request_id)
    response.headers[envelopes.ANTHROPIC_REQUEST_ID] = request_id
    return response


def own_headers(request_id: str) -> dict[str, str]:
    """Headers of each answer of the router itself."""
    return {"server": "yaie", HEADER_REQUEST_ID: request_id}


def error_answer(
    error: YaieError, request_id: str, *, path: str = "", retried: bool = False
) -> web.Response:
    """Make the response for an error, in the path's envelope. 429 and 503 say when to retry."""
    response = json_answer(envelopes.for_path(error, path, request_id), request_id, error.status)
    if path.startswith(envelopes.ANTHROPIC_PATH):
        response.headers[envelopes.ANTHROPIC_REQUEST_ID] = request_id
    response.headers.update(error.headers)
    if retried:
        response.headers["x-should-retry"] = "false"
    return response
