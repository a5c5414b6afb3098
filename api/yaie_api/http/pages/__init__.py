"""The two web pages that a server shows to people: a chat at `/`, and the API at `/docs`.

Each is one static file without a foreign host and says nothing about the server: what it shows, the
browser fetches from the API with the key that its user types. The router and `yaie serve` send the
same bytes; what they have to decide is here: who gets a page, with which headers.
"""

import base64
import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final

CHAT: Final = "/"
DOCS: Final = "/docs"
METHODS: Final = ("GET", "HEAD")
_FILES: Final = {CHAT: "chat.html", DOCS: "docs.html"}
_INLINE: Final = re.compile(rb"<(style|script)>(.*?)</\1>", re.DOTALL)
_POLICY: Final = (
    "default-src 'none'; connect-src 'self'; script-src {script}; style-src {style}; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
"""Only the file's own style and script, known by their hashes, apply. Trusted types: no text, and
so nothing that a model wrote, can become markup or code."""


@dataclass(frozen=True)
class Reply:
    """An HTTP response. `headers` have lower-case names; without a body they say its length."""

    status: int
    headers: dict[str, str]
    body: bytes


def find(path: str, accept: str = "") -> str | None:
    """The page that a GET or HEAD of `path` gets, if any. A program that asks for `/` without
    naming HTML among what it accepts is answered as for any path that is not there.
    """
    if path == DOCS or (path == CHAT and _takes_html(accept)):
        return path
    return None


def reply(page: str, if_none_match: str = "") -> Reply:
    """The response for a page that `find` has found: 304 where the browser has it already."""
    body, headers = _load(page)
    if headers["etag"] in (tag.strip().removeprefix("W/") for tag in if_none_match.split(",")):
        return Reply(304, headers, b"")
    return Reply(200, headers, body)


@cache
def _load(page: str) -> tuple[bytes, dict[str, str]]:
    body = resources.files(__name__).joinpath(_FILES[page]).read_bytes()
    return body, {
        "content-type": "text/html; charset=utf-8",
        "content-security-policy": policy(body),
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cache-control": "no-cache",
        "etag": f'"{hashlib.sha256(body).hexdigest()[:32]}"',
        "vary": "accept",
    }


def policy(body: bytes) -> str:
    """The Content-Security-Policy under which exactly the inline blocks of a file apply."""
    sources: dict[bytes, list[str]] = {b"style": [], b"script": []}
    for kind, text in _INLINE.findall(body):
        digest = base64.b64encode(hashlib.sha256(text).digest()).decode()
        sources[kind].append(f"'sha256-{digest}'")
    return _POLICY.format(
        script=" ".join(sources[b"script"]) or "'none'",
        style=" ".join(sources[b"style"]) or "'none'",
    )


def _takes_html(accept: str) -> bool:
    for part in accept.lower().split(","):
        kind, *parameters = (word.strip() for word in part.split(";"))
        if kind in ("text/html", "application/xhtml+xml"):
            return not any(re.fullmatch(r"q=0(\.0*)?", word) for word in parameters)
    return False
