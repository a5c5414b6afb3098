"""Checks the lines of a batch file, and the file as a whole, before an engine starts."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from yaie.server.routes import ENDPOINTS
from yaie_api.errors import InvalidRequestError
from yaie_api.http.paths import closest
from yaie_api.http.wire import shown

SHOWN_REPEATS: Final = 5
SHOWN_CHARACTERS: Final = 64

URLS: Final = tuple(
    path for endpoint in ENDPOINTS for path in endpoint.paths if endpoint.body is not None
)
"""Every path of the server that takes a request in a body."""


@dataclass(frozen=True, slots=True)
class Line:
    """A request of a batch file."""

    custom_id: str
    url: str
    body: dict[str, Any]


class _Identified(msgspec.Struct):
    custom_id: str


_identified: Final = msgspec.json.Decoder(_Identified).decode


def parse_line(text: str) -> Line:
    """Check a line and return its request.

    Raises:
        InvalidRequestError: it is not a request that can be in a batch.

    """
    given = _object(text)
    custom_id, url, body = (given.get(name) for name in ("custom_id", "url", "body"))
    if not isinstance(custom_id, str):
        raise InvalidRequestError("custom_id must be a string.", param="custom_id")
    if given.get("method", "POST") != "POST":
        raise InvalidRequestError("method must be POST.", param="method")
    if url not in URLS:
        raise InvalidRequestError(_unknown(url), param="url")
    if not isinstance(body, dict):
        raise InvalidRequestError("body must be an object.", param="body")
    if body.get("stream"):
        raise InvalidRequestError("stream makes no sense in a batch.", param="stream")
    return Line(custom_id, url, body)


def _unknown(url: Any) -> str:
    """Name the path that was probably meant, else all of them."""
    if not isinstance(url, str):
        return f"url must be one of {', '.join(URLS)}."
    path = urlsplit(url).path if "://" in url else url
    meant = path if path in URLS else closest(path, URLS)
    hint = f"did you mean {meant}?" if meant else f"it must be one of {', '.join(URLS)}."
    return f"url {shown(url)} is not a path of this server; {hint}"


def _object(text: str) -> dict[str, Any]:
    try:
        given = msgspec.json.decode(text)
    except UnicodeError:
        raise InvalidRequestError("The line is not valid JSON: not UTF-8.") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidRequestError(f"The line is not valid JSON: {error}.") from None
    if not isinstance(given, dict):
        raise InvalidRequestError("The line must be a JSON object.")
    return given


def id_of(text: str) -> str | None:
    """Return the custom_id of a line, even if the rest is wrong; None: it has none."""
    try:
        return _identified(text).custom_id
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def count_requests(lines: Iterable[str]) -> int:
    """Count the lines that get an answer, which includes wrong ones.

    Raises:
        InvalidRequestError: two have the same custom_id, so that nobody could tell their answers
            apart.

    """
    seen: dict[str, int] = {}
    count, repeats = 0, []
    for number, text in enumerate(lines, start=1):
        if not text.strip():
            continue
        count += 1
        custom_id = id_of(text)
        if custom_id is not None and (first := seen.setdefault(custom_id, number)) != number:
            repeats.append((custom_id[:SHOWN_CHARACTERS], first, number))
    if repeats:
        raise InvalidRequestError(_told(repeats), param="custom_id")
    return count


def _told(repeats: list[tuple[str, int, int]]) -> str:
    shown = [f"{name!r} on lines {first} and {again}" for name, first, again in repeats]
    more = len(shown) - SHOWN_REPEATS
    rest = f", and {more} more" if more > 0 else ""
    return f"Every line needs a custom_id of its own: {', '.join(shown[:SHOWN_REPEATS])}{rest}."
