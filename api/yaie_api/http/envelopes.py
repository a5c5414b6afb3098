"""Error bodies of each API: OpenAI's, and Anthropic's on its own paths.

The engine and the router both use this module, so a client gets the same form from either.
"""

from typing import Any, Final

from yaie_api.errors import YaieError

ANTHROPIC_PATH: Final = "/v1/messages"
_TYPE_OF_STATUS: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "invalid_request_error",
    413: "request_too_large",
    415: "invalid_request_error",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def for_path(error: YaieError, path: str, request_id: str = "") -> dict[str, Any]:
    """The error body in the form that clients of this path expect."""
    if path.startswith(ANTHROPIC_PATH):
        return anthropic(error, request_id)
    return error.envelope()


def anthropic(error: YaieError, request_id: str = "") -> dict[str, Any]:
    """Anthropic's error body."""
    kind = _TYPE_OF_STATUS.get(error.status, "api_error")
    return {
        "type": "error",
        "error": {"type": kind, "message": error.message},
        "request_id": request_id,
    }
