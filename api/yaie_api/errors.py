"""The error tree of yaie. Each error class has an HTTP status and says whether a retry can help.

    YaieError
    ├── InvalidRequestError          400  the request is invalid and would fail again
    │   └── ContextLengthError       400  prompt (+ max_tokens) does not fit the model's context
    ├── AuthenticationError          401
    ├── NotFoundError                404  unknown model or path
    ├── MethodNotAllowedError        405
    ├── BodyTimeoutError             408  the request's body came too slowly
    ├── PayloadTooLargeError         413
    ├── UnsupportedEncodingError     415  the body is compressed
    ├── OverloadedError              429  the queue is full: retry later
    ├── RateLimitError               429  the tenant has taken what it may, for now
    ├── EngineError                  500  this request failed inside the engine
    ├── UnavailableError             503  no engine can take the request now: retry
    └── DeadlineExceededError        504  the time limit passed; a retry would fail too

`YaieError.envelope` is the one place that maps an error to OpenAI's error body. Messages reach
users: they contain no paths, addresses or library names.
"""

import math
from collections.abc import Mapping
from typing import Any, ClassVar


class YaieError(Exception):
    """Base of every error that yaie reports to a user."""

    status: ClassVar[int] = 500
    type: ClassVar[str] = "internal_error"
    default_code: ClassVar[str | None] = None
    retryable: ClassVar[bool] = False
    should_not_retry: ClassVar[bool] = False
    """Whether to tell clients, which may retry because of the status, not to retry."""

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code if code is not None else self.default_code
        self.retry_after_s = retry_after_s

    @property
    def headers(self) -> dict[str, str]:
        """Response headers: after which time to retry, or that a retry cannot help."""
        if self.retry_after_s is not None or self.retryable:
            return {"retry-after": str(max(1, math.ceil(self.retry_after_s or 1)))}
        return {"x-should-retry": "false"} if self.should_not_retry else {}

    def envelope(self) -> dict[str, Any]:
        """OpenAI's error body: `{"error": {"message", "type", "param", "code"}}`."""
        return {
            "error": {
                "message": self.message,
                "type": self.type,
                "param": self.param,
                "code": self.code,
            }
        }


class InvalidRequestError(YaieError):
    """The request cannot be served as written; the message says what to change."""

    status = 400
    type = "invalid_request_error"


class ContextLengthError(InvalidRequestError):
    """Prompt and requested output do not fit the context. Clients recognise the message's start.

    `limit`, `prompt_tokens` and `max_tokens` are kept for APIs that word it in another way.
    """

    default_code = "context_length_exceeded"

    def __init__(
        self,
        limit: int,
        prompt_tokens: int,
        max_tokens: int | None,
        *,
        param: str = "messages",
        at_least: bool = False,
    ) -> None:
        self.limit, self.prompt_tokens = limit, prompt_tokens
        self.max_tokens = None if at_least else max_tokens
        asked = f"{'at least ' if at_least else ''}{prompt_tokens} tokens in the prompt"
        if max_tokens is not None and not at_least:
            asked = (
                f"{prompt_tokens + max_tokens} tokens ({prompt_tokens} in the prompt, "
                f"{max_tokens} in the completion)"
            )
        super().__init__(
            f"This model's maximum context length is {limit} tokens. However, you requested "
            f"{asked}. Please shorten the prompt or lower max_tokens.",
            param=param,
        )


class AuthenticationError(YaieError):
    """A key is required and was missing or wrong."""

    status = 401
    type = "authentication_error"
    default_code = "invalid_api_key"

    @property
    def headers(self) -> dict[str, str]:
        """How to show a key, as RFC 9110 requires for a 401."""
        return {"www-authenticate": "Bearer"}


class NotFoundError(YaieError):
    """No such model or path."""

    status = 404
    type = "not_found_error"


class MethodNotAllowedError(YaieError):
    """The path does not take this method."""

    status = 405
    type = "invalid_request_error"
    default_code = "method_not_allowed"


class BodyTimeoutError(YaieError):
    """The request's body came too slowly."""

    status = 408
    type = "invalid_request_error"
    default_code = "body_timeout"


class PayloadTooLargeError(YaieError):
    """Body, header or list over its limit."""

    status = 413
    type = "invalid_request_error"
    default_code = "payload_too_large"


class UnsupportedEncodingError(YaieError):
    """The body is compressed. It is refused because limits apply to the size before unpacking."""

    status = 415
    type = "invalid_request_error"
    default_code = "unsupported_content_encoding"

    @property
    def headers(self) -> dict[str, str]:
        """The accepted encoding, as RFC 9110 requires for a 415."""
        return {"accept-encoding": "identity"}


class OverloadedError(YaieError):
    """The queue is full; Retry-After says when to try again."""

    status = 429
    type = "overloaded_error"
    default_code = "queue_full"
    retryable = True


class RateLimitError(YaieError):
    """A tenant has reached one of its limits. `kind`: `requests` or `tokens`, which OpenAI's
    clients find as the error's type. `limits`: headers that say how much is left of what.
    """

    status = 429
    default_code = "rate_limit_exceeded"
    retryable = True

    def __init__(
        self, message: str, *, kind: str, retry_after_s: float, limits: Mapping[str, str]
    ) -> None:
        super().__init__(message, retry_after_s=retry_after_s)
        self._kind = kind
        self._limits = dict(limits)

    @property
    def headers(self) -> dict[str, str]:
        """When to retry, to the millisecond too, and what is left."""
        wait_ms = {"retry-after-ms": str(math.ceil((self.retry_after_s or 0) * 1000))}
        return super().headers | wait_ms | self._limits

    def envelope(self) -> dict[str, Any]:
        """OpenAI's error body, whose type says which limit it was."""
        told = super().envelope()
        return {"error": told["error"] | {"type": self._kind}}


class EngineError(YaieError):
    """The engine failed on this request; others go on."""

    status = 500
    type = "internal_error"
    default_code = "engine_error"


class UnavailableError(YaieError):
    """No engine can take the request now (starting, draining, none ready)."""

    status = 503
    type = "service_unavailable"
    default_code = "unavailable"
    retryable = True


class DeadlineExceededError(YaieError):
    """The request did not end within its time limit."""

    status = 504
    type = "timeout_error"
    default_code = "deadline_exceeded"
    should_not_retry = True
