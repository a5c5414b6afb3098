"""API keys: where they come from, which one a request shows, and whether it is one of them."""

import hashlib
import hmac
from collections.abc import Iterable
from typing import Final

from yaie_api.http.access.head import Head

KEY_HEADERS: Final = (b"authorization", b"x-api-key")
"""OpenAI's header and Anthropic's."""


class ApiKeys:
    """The keys that a server accepts, of which it keeps hashes only. None at all: it asks for none.

    The time that a comparison takes says nothing about the keys.
    """

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self._digests = tuple(_digest(key.encode()) for key in keys)

    def __bool__(self) -> bool:
        return bool(self._digests)

    def accept(self, key: bytes) -> bool:
        """Whether `key` is one of them. All are compared, whichever matches."""
        given = _digest(key)
        matches = [hmac.compare_digest(given, digest) for digest in self._digests]
        return any(matches)


def parse_keys(text: str) -> tuple[str, ...]:
    """Keys from an environment variable or a file: one a line; empty lines are passed over."""
    return tuple(stripped for line in text.splitlines() if (stripped := line.strip()))


def shown_key(head: Head) -> bytes:
    """The key that a request shows; b"": it shows none, or a header for it twice."""
    shown = [name for name, _ in head.headers if name in KEY_HEADERS]
    if len(shown) > len(set(shown)):
        return b""
    key = key_of(head.header(b"authorization"), head.header(b"x-api-key"))
    return key.encode("latin-1")


def key_of(authorization: str, x_api_key: str) -> str:
    """The key in the values of the two headers; "": there is none."""
    scheme, _, key = authorization.partition(" ")
    if scheme:
        return key.strip(" \t") if scheme.lower() == "bearer" else ""
    return x_api_key.strip(" \t")


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
