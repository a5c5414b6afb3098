"""Small things that the endpoints share: the body as JSON, answers as JSON, the service."""

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
"""The decoder takes the first half of a surrogate pair for a body that was cut off, when less than
the other half follows."""
_HALF: Final = (
    "half of a surrogate pair, an escape from \\ud800 to \\udfff on its own, is no character; "
    "leave it out or send both halves"
)


def service_of(request: Request) -> Service:
    return cast(Service, request.app.state.service)


async def read_json(request: Request) -> Any:
    """The body as JSON values.

    Raises:
        InvalidRequestError: not JSON, or a number that does not fit.

    """
    body = (await request.body()).removeprefix(BOM_UTF8)
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        reason = _fault(body, str(error))
    except UnicodeDecodeError:
        reason = "not UTF-8"
    except RecursionError:
        reason = "nested too deeply"
    raise InvalidRequestError(f"The request body is not valid JSON: {reason}.")


def _fault(body: bytes, told: str) -> str:
    """What is wrong with a body of which the decoder has told this."""
    if "surrogate" in told or ("truncated" in told and _HALF_AT_END.search(body[-64:])):
        return _HALF
    return told.partition(" - at ")[0]


def json_response(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(_json(body), status, headers, media_type="application/json")


def error_response(error: YaieError, path: str = "") -> Response:
    """The error in the envelope that clients of this path know, OpenAI's or Anthropic's. What they
    should know about retries is in the headers.
    """
    body = envelopes.for_path(error, path, request_id.get())
    return json_response(body, error.status, error.headers)


def left_response() -> Response:
    """For the log and the metrics only: nobody is there to read it."""
    return Response(status_code=STATUS_CLIENT_LEFT)
