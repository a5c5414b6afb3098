"""Reads a request: its head, its body within limits of size and time, and the model it names."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from aiohttp import web

from yaie_api.errors import (
    InvalidRequestError,
    NotFoundError,
    UnavailableError,
    UnsupportedEncodingError,
)
from yaie_api.http.access.body import BodyLimits, BodyMeter
from yaie_api.http.access.head import Head
from yaie_router.discovery.endpoints import Directory, Holder
from yaie_router.discovery.objects import Model
from yaie_router.downstream.bodies import large_body
from yaie_router.downstream.bodies.body_budget import BodyLease
from yaie_router.downstream.bodies.large_body import LARGE_BYTES
from yaie_router.routes import merged

_MOST_NAMES: Final = 20
_MOST_TOKENS: Final = ("max_completion_tokens", "max_tokens", "max_output_tokens")


def head_of(request: web.BaseRequest) -> Head:
    """The head, as the gate and the routes look at it."""
    headers = [(name.lower(), value) for name, value in request.raw_headers]
    return Head(request.method, merged(request.path), headers)


async def read_body(request: web.BaseRequest, limits: BodyLimits, lease: BodyLease) -> bytes:
    """Read the whole body into the memory that `lease` takes for it.

    Raises:
        BodyTimeoutError: it came too slowly.
        OverloadedError: there is no room for it.
        PayloadTooLargeError: it is too large.
        UnsupportedEncodingError: it is compressed.

    """
    encoding = request.headers.get("content-encoding", "identity").lower()
    if encoding != "identity":
        raise UnsupportedEncodingError(
            f"Content-Encoding {encoding[:40]!r} is not supported: send the body uncompressed."
        )
    meter = BodyMeter(limits)
    meter.declare(request.content_length or 0)
    if request.headers.get("expect", "").lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # the answer itself has not begun
    if request.content.is_eof():  # most bodies come with their heads
        body = request.content.read_nowait()
        meter.add(len(body))
        lease.grow(len(body))
        lease.finish()
        return body
    parts: list[bytes] = []
    while part := await _next_part(request, meter):
        meter.add(len(part))
        lease.grow(len(part))
        parts.append(part)
    lease.finish()
    return parts[0] if len(parts) == 1 else b"".join(parts)


async def _next_part(request: web.BaseRequest, meter: BodyMeter) -> bytes:
    """Wait for more of the body; b"": it has ended."""
    if request.content.is_eof():
        return request.content.read_nowait()  # it is here: no timer is needed
    try:
        async with asyncio.timeout(meter.left_s()):
            return await request.content.readany()
    except TimeoutError:
        raise meter.too_slow() from None


def is_read_in_part(size: int) -> bool:
    """Whether `parse` returns the beginning only of a body of so many bytes."""
    return size > LARGE_BYTES


async def parse(body: bytes) -> dict[str, Any]:
    """Decode the body, a JSON object; of a large one, the fields that routing needs.

    Raises:
        InvalidRequestError: it is not a JSON object.

    """
    try:
        in_part = is_read_in_part(len(body))
        decoded = await large_body.read(body) if in_part else _decode(body)
    except msgspec.ValidationError:
        raise InvalidRequestError("The body must be a JSON object.") from None
    except (ValueError, RecursionError) as error:
        text = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InvalidRequestError(f"The body is not valid JSON: {text}.") from None
    if not isinstance(decoded, dict):
        raise InvalidRequestError("The body must be a JSON object.")
    return decoded


def _decode(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        # Lone surrogates (a cut emoji) are JSON that msgspec refuses; engines may accept them.
        return json.loads(body, parse_constant=_refuse_constant)


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is not a JSON number")


def find_model(directory: Directory, body: dict[str, Any]) -> Model:
    """Find the model that the body names.

    Raises:
        InvalidRequestError: it names no model.
        NotFoundError: there is no model of that name.
        UnavailableError: the models have not been listed yet.

    """
    name = body.get("model")
    if not isinstance(name, str) or not name:
        raise InvalidRequestError(
            f"Set `model` to the name of a model, as a string. {_available(directory)}",
            param="model",
        )
    model = directory.find(name)
    if model is not None:
        return model
    if not directory.is_listed:
        raise _starting()
    raise model_not_found(directory, name)


def find_holder(directory: Directory, response_id: str) -> Holder:
    """Find the engine that has a stored response.

    Raises:
        NotFoundError: that engine is gone.
        UnavailableError: the endpoints have not been listed yet.

    """
    holder = directory.holder(response_id)
    if holder is not None:
        return holder
    if not directory.is_listed:
        raise _starting()
    raise NotFoundError(
        "There is no such response. Responses are stored in the memory of the engine that made "
        "them, and the engine that this id names is not here any more.",
        param="response_id",
        code="response_not_found",
    )


def most_tokens(body: Mapping[str, Any]) -> int | None:
    """The most tokens that the answer to a request may have; None: it does not say."""
    for name in _MOST_TOKENS:
        if isinstance(most := body.get(name), int) and most >= 0:
            outputs = body.get("n")
            return most * max(1, outputs) if isinstance(outputs, int) else most
    return None


def model_not_found(directory: Directory, name: str) -> NotFoundError:
    """Make the error for a name that no model has."""
    return NotFoundError(
        f"The model {name[:100]!r} does not exist. {_available(directory)}",
        param="model",
        code="model_not_found",
    )


def _starting() -> UnavailableError:
    return UnavailableError("The router is starting and does not know the models yet.")


def _available(directory: Directory) -> str:
    names = directory.served_names()
    if not names:
        return "No model is deployed here yet."
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return f"Available models: {', '.join(names[:_MOST_NAMES])}{more}."
