"""Helpers of the endpoints: the request's body as JSON, answers as JSON, the service."""

import re
from codecs import BOM_UTF8
from typing import Any, Final, cast

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from yaie.server.service import Service
from yaie_api.errors import InvalidRequestError, YaieError
from yaie_api.http import envelopes
from yaie_api.logs import request_id

_json: Final = msgspec.json.Encoder().encode
STATUS_CLIENT_LEFT: Final = 499
_HALF_AT_END: Final = re.compile(
    rb"(?<!\\)(?:\\\\)*(\\u[dD][89abAB][0-9a-fA-F]{2})[^\\]{0,5}\Z", re.DOTALL
)
"""A first half of a surrogate pair near the body's end: the decoder reports that as a body that was
cut off."""
_HALF: Final = (
    "half of a surrogate pair, an escape from \\ud800 to \\udfff on its own, is no character; "
    "leave it out or send both halves"
)


def service_of(request: Request) -> Service:
    return cast(Service, request.app.state.service)


async def read_json(request: Request) -> Any:
    """Return the request's body, decoded from JSON.

    Raises:
        InvalidRequestError: it is not JSON, or has a number that does not fit.

    """
    return (await read_json_and_tail(request, 0))[0]


async def read_json_and_tail(request: Request, tail_bytes: int) -> tuple[Any, bytes]:
    """Return the request's body, decoded from JSON, and its last bytes, which are not of the JSON.

    Raises:
        InvalidRequestError: it is not JSON, or has a number that does not fit.

    """
    body = (await request.body()).removeprefix(BOM_UTF8)
    tail = b""
    if tail_bytes:
        body, tail = body[:-tail_bytes], body[-tail_bytes:]
    try:
        return msgspec.json.decode(body), tail
    except msgspec.DecodeError as error:
        reason = _fault(body, str(error))
    except UnicodeDecodeError:
        reason = "not UTF-8"
    except RecursionError:
        reason = "nested too deeply"
    raise InvalidRequestError(f"The request body is not valid JSON: {reason}.")


def _fault(body: bytes, told: str) -> str:
    """Say what is wrong with a body. `told`: the decoder's message."""
    if "surrogate" in told or ("truncated" in told and _HALF_AT_END.search(body[-64:])):
        return _HALF
    return told.partition(" - at ")[0]


def json_response(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(_json(body), status, headers, media_type="application/json")


def error_response(error: YaieError, path: str = "") -> Response:
    """Answer with the error, in OpenAI's envelope or, on Anthropic's paths, in theirs. The headers
    say when to retry.
    """
    body = envelopes.for_path(error, path, request_id.get())
    return json_response(body, error.status, error.headers)


def left_response() -> Response:
    """The answer to a client that has left: only the log and the metrics see it."""
    return Response(status_code=STATUS_CLIENT_LEFT)
