"""API keys: how they are written down, which one a request shows, and whose it is."""

import hashlib
import hmac
import secrets
from collections.abc import Iterable, Mapping
from typing import Final

from yaie_api.http.access.head import Head

KEY_HEADERS: Final = (b"authorization", b"x-api-key")
"""OpenAI's header and Anthropic's."""
HASHED: Final = b"sha256:"
"""Before a key that is written as the SHA-256 of itself, in hex."""


class ApiKeys:
    """The keys that a server accepts, of which it keeps hashes only, each with its tenant's name.

    Keys without a tenant are those of the tenant "". A key is looked up by its hash under a random
    key of this process: whoever guesses cannot choose what is compared with what, so the time that
    it takes says nothing about the keys, however many there are.
    """

    def __init__(
        self, keys: Iterable[str] = (), *, tenants: Mapping[str, Iterable[bytes]] | None = None
    ) -> None:
        self._blind = secrets.token_bytes(32)
        self._tenants: dict[bytes, str] = {}
        for tenant, digests in {"": map(digest, map(str.encode, keys)), **(tenants or {})}.items():
            for one in digests:
                self._tenants.setdefault(self._blinded(one), tenant)

    def __bool__(self) -> bool:
        return bool(self._tenants)

    def __len__(self) -> int:
        return len(self._tenants)

    @property
    def tenants(self) -> frozenset[str]:
        """Who has a key."""
        return frozenset(self._tenants.values())

    def tenant_of(self, key: bytes) -> str | None:
        """Whose key it is; None: it is none of them."""
        return self._tenants.get(self._blinded(digest(key)))

    def _blinded(self, hashed: bytes) -> bytes:
        return hmac.digest(self._blind, hashed, "sha256")


def parse_keys(text: str) -> tuple[str, ...]:
    """Keys from an environment variable or a file: one a line; empty lines are passed over."""
    return tuple(stripped for line in text.splitlines() if (stripped := line.strip()))


def parse_entry(entry: bytes) -> tuple[bytes, ...]:
    """The SHA-256 digests of one tenant's keys: a line for each, the key or `sha256:` and hex.

    Raises:
        ValueError: a line begins with `sha256:` and has no 64 hexadecimal digits after it.

    """
    lines = (line.strip() for line in entry.splitlines())
    return tuple(_read(line) for line in lines if line)


def digest(key: bytes) -> bytes:
    """The SHA-256 of a key."""
    return hashlib.sha256(key).digest()


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


def _read(line: bytes) -> bytes:
    if not line.startswith(HASHED):
        return digest(line)
    try:
        found = bytes.fromhex(line.removeprefix(HASHED).decode("ascii"))
    except ValueError:
        found = b""
    if len(found) != hashlib.sha256().digest_size:
        raise ValueError("after sha256: come the 64 hexadecimal digits of a key's SHA-256")
    return found
