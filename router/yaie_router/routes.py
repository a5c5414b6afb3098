"""The router's paths: which are forwarded, and the name of each in logs and metrics. Pure.

An engine's other paths (probes, metrics, its tokenizer's settings) are not forwarded.
"""

import re
from typing import Final

from yaie_api import names
from yaie_api.http import pages
from yaie_api.response_id import PREFIX

RESPONSES: Final = "/v1/responses"
INPUT_TOKENS: Final = "/v1/responses/input_tokens"
CONTINUING: Final = (RESPONSES, INPUT_TOKENS)
"""Paths of POST requests that may go on from a stored response."""
GENERATING: Final = ("/v1/chat/completions", "/v1/completions", RESPONSES, "/v1/messages")
COMPUTING: Final = (
    "/v1/embeddings", "/v1/rerank", "/rerank", "/v2/rerank", "/v1/score", "/score",
    "/v1/classify", "/classify", INPUT_TOKENS, "/v1/messages/count_tokens", "/tokenize",
    "/detokenize",
)  # fmt: skip
FORWARDED: Final = GENERATING + COMPUTING
"""Paths of POST requests that name their model in the body."""

MODELS: Final = "/v1/models"
ONE_MODEL: Final = "/v1/models/{model}"
STORED: Final = "/v1/responses/{response_id}"
CANCEL: Final = STORED + "/cancel"
INPUT_ITEMS: Final = STORED + "/input_items"
OTHERS: Final = (MODELS, ONE_MODEL, STORED, CANCEL, INPUT_ITEMS)
PAGES: Final = (pages.CHAT, pages.DOCS)
OPENAPI: Final = "/openapi.json"
HEALTH: Final = "/health"
VERSION: Final = "/version"
OWN: Final = (names.PATH_LIVE, names.PATH_READY, HEALTH, VERSION)
"""GET, of the router itself."""

_SLASHES: Final = re.compile("//+")
_STORED: Final = re.compile(r"/v1/responses/([A-Za-z0-9_-]{1,128})(/cancel|/input_items)?")


def merged(path: str) -> str:
    """Return the path with each run of slashes as one, as web servers read it: clients put a base
    URL that ends with a slash before a path that begins with one.
    """
    return _SLASHES.sub("/", path)


def may_exist(route: str, path: str) -> bool:
    """Whether what the path names may be there: `/v1/responses/compact` is no response's path."""
    return "{response_id}" not in route or response_id_in(path).startswith(PREFIX)


def route_of(path: str) -> str:
    """Return the path with placeholders for names and ids, so that labels are a bounded set."""
    if path.startswith(MODELS + "/"):
        return ONE_MODEL
    if path != INPUT_TOKENS and (found := _STORED.fullmatch(path)):
        return STORED + (found[2] or "")
    return path


def response_id_in(path: str) -> str:
    """Return the id in the path of a stored response; "": it is another path."""
    found = _STORED.fullmatch(path)
    return found[1] if found and path != INPUT_TOKENS else ""
