"""Which web pages of other origins may use a server: CORS, as browsers ask for it (Fetch, §3.2).

Off until somebody names an origin. The settings are vLLM's.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from yaie_api import names
from yaie_api.http.access.head import Head

ANY: Final = "*"
METHODS: Final = ("GET", "HEAD", "POST", "DELETE")
"""What the APIs use, and so what `*` means."""
EXPOSED: Final = (
    *(names.HEADER_REQUEST_ID, "request-id", names.HEADER_ENDPOINT),
    *("retry-after", "x-should-retry"),
)
"""Response headers that a page may read beside the few that it always may."""
_MAX_AGE_S: Final = 600
_ENVIRONMENT: Final = {
    "origins": names.ENV_ALLOWED_ORIGINS,
    "methods": names.ENV_ALLOWED_METHODS,
    "headers": names.ENV_ALLOWED_HEADERS,
}


@dataclass(frozen=True)
class CorsPolicy:
    """What is allowed to pages of other origins; no origins: nothing. `*` stands for all.

    `credentials`: whether browsers may send cookies along. API keys are no credentials in this
    sense: a page's own script sends them.
    """

    origins: tuple[str, ...] = ()
    methods: tuple[str, ...] = (ANY,)
    headers: tuple[str, ...] = (ANY,)
    credentials: bool = False

    def allows(self, origin: str) -> bool:
        """Whether a page of this origin may read answers."""
        return bool(origin) and (ANY in self.origins or origin in self.origins)

    def is_preflight(self, head: Head) -> bool:
        """Whether a browser asks, before the request itself, what it may send."""
        return (
            bool(self.origins)
            and head.method == "OPTIONS"
            and bool(head.origin)
            and bool(head.header(b"access-control-request-method"))
        )

    def preflight_headers(self, head: Head) -> dict[str, str]:
        """Headers of the answer to a preflight of an allowed origin, beside `answer_headers`."""
        asked = head.header(b"access-control-request-headers")
        names_ = asked if ANY in self.headers else ", ".join(self.headers)
        told = {
            "access-control-allow-methods": ", ".join(
                METHODS if ANY in self.methods else self.methods
            ),
            "access-control-max-age": str(_MAX_AGE_S),
        }
        if names_:
            told["access-control-allow-headers"] = names_
        if head.header(b"access-control-request-private-network") == "true":
            told["access-control-allow-private-network"] = "true"
        return told

    def answer_headers(self, origin: str) -> dict[str, str]:
        """Headers of every answer: errors too, or a page could not read what was wrong."""
        if not self.origins:
            return {}
        # An answer for one origin must not be kept for another one.
        vary = {} if self.origins == (ANY,) and not self.credentials else {"vary": "origin"}
        if not self.allows(origin):
            return vary
        told = {
            "access-control-allow-origin": origin if vary else ANY,
            "access-control-expose-headers": ", ".join(EXPOSED),
        }
        if self.credentials:
            told["access-control-allow-credentials"] = "true"
        return told | vary

    def environment(self) -> dict[str, str]:
        """The variables with which a router gets this policy."""
        if not self.origins:
            return {}
        told = {name: json.dumps(getattr(self, field)) for field, name in _ENVIRONMENT.items()}
        return told | {names.ENV_ALLOW_CREDENTIALS: "true" if self.credentials else "false"}


def policy_of(environment: Mapping[str, str]) -> CorsPolicy:
    """The policy that variables name.

    Raises:
        ValueError: an origin or a list is not one; the message says what to write.

    """
    given: dict[str, Any] = {
        field: parse_list(environment[name])
        for field, name in _ENVIRONMENT.items()
        if environment.get(name)
    }
    for origin in given.get("origins", ()):
        check_origin(origin)
    credentials = environment.get(names.ENV_ALLOW_CREDENTIALS, "false").lower()
    if credentials not in ("", "true", "false"):
        raise ValueError(f"{names.ENV_ALLOW_CREDENTIALS} is {credentials!r}: write true or false")
    return CorsPolicy(**given, credentials=credentials == "true")


def parse_list(text: str) -> tuple[str, ...]:
    """A list as vLLM takes it, in JSON, or words with commas between them.

    Raises:
        ValueError: it begins like JSON and is no list of strings.

    """
    found = _strings(text) if text.lstrip().startswith("[") else text.split(",")
    return tuple(word for one in found if (word := one.strip()))


def _strings(text: str) -> Sequence[str]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise ValueError(f"{text!r} is no list of strings: write '[\"https://a.example\"]'")
    return found


def check_origin(text: str) -> None:
    """Check an origin: a scheme, a host and perhaps a port, or `*`, or `null` (pages of files).

    Raises:
        ValueError: it is none, and would never match what browsers send.

    """
    if text in (ANY, "null"):
        return
    try:
        parts = urlsplit(text)
        whole = f"{parts.scheme}://{parts.netloc}" if parts.scheme and parts.netloc else ""
    except ValueError:
        whole = ""
    if not whole:
        raise ValueError(
            f"{text!r} is no origin: write its scheme, host and port, as in https://app.example "
            "or http://localhost:3000, or * for all"
        )
    if text != whole.lower():
        raise ValueError(
            f"{text!r} is more than an origin, or not as browsers send it: write {whole.lower()}"
        )
