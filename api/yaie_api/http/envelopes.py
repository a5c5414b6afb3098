"""Error bodies of each API: OpenAI's, and Anthropic's on its own paths; names of its headers.

The engine and the router both use this module, so a client gets the same form from either.
"""

from typing import Any, Final

from yaie_api.errors import ContextLengthError, YaieError

ANTHROPIC_PATH: Final = "/v1/messages"
MODELS_PATH: Final = "/v1/models"
ANTHROPIC_VERSION: Final = "anthropic-version"
"""The request header by which Anthropic's clients are known on paths that others ask, too."""
THREAD_REFUSED: Final = "thread_unsupported_request"
"""The code of a refused `thread`: Anthropic's clients then send the whole conversation instead."""
ANTHROPIC_REQUEST_ID: Final = "request-id"
"""The response header in which Anthropic's clients look for the request's id."""
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
    message = _too_long(error) if isinstance(error, ContextLengthError) else error.message
    told: dict[str, Any] = {"type": kind, "message": message}
    if error.code == THREAD_REFUSED:
        told["details"] = {"error_code": THREAD_REFUSED, "unsupported": ["thread"]}
    return {"type": "error", "error": told, "request_id": request_id}


def _too_long(error: ContextLengthError) -> str:
    """Anthropic's words: its clients read the numbers, and ask for less or shorten the prompt."""
    limit, prompt, most = error.limit, error.prompt_tokens, error.max_tokens
    if most is None or prompt >= limit:
        return f"prompt is too long: {prompt} tokens > {limit} maximum"
    return (
        f"input length and `max_tokens` exceed context limit: {prompt} + {most} > {limit}, "
        "decrease input length or `max_tokens` and try again"
    )
