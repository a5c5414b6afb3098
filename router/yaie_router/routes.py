"""The router's paths: which are forwarded, and what logs and metrics call each. Pure.

An engine's other paths (probes, metrics, its tokenizer's settings) are its own affair.
"""

import re
from typing import Final

from yaie_api import names
from yaie_api.errors import NotFoundError
from yaie_api.http import pages

RESPONSES: Final = "/v1/responses"
GENERATING: Final = ("/v1/chat/completions", "/v1/completions", RESPONSES, "/v1/messages")
COMPUTING: Final = (
    "/v1/embeddings", "/v1/rerank", "/rerank", "/v2/rerank", "/v1/score", "/score",
    "/v1/classify", "/classify", "/v1/messages/count_tokens", "/tokenize", "/detokenize",
)  # fmt: skip
FORWARDED: Final = GENERATING + COMPUTING
"""POST, with the model in the body."""

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
OWN: Final = (names.PATH_LIVE, names.PATH_READY, HEALTH, VERSION, names.PATH_METRICS)
"""GET, of the router itself."""

_STORED: Final = re.compile(r"/v1/responses/([A-Za-z0-9_-]{1,128})(/cancel|/input_items)?")


def no_such_path() -> NotFoundError:
    """The error for what is no path of the router."""
    return NotFoundError("No such path. The API is under /v1.", code="path_not_found")


def route_of(path: str) -> str:
    """The path with a placeholder for what names a single thing: a bounded set of labels."""
    if path.startswith(MODELS + "/"):
        return ONE_MODEL
    if found := _STORED.fullmatch(path):
        return STORED + (found[2] or "")
    return path


def response_id_in(path: str) -> str:
    """The id in the path of a stored response; "" elsewhere."""
    found = _STORED.fullmatch(path)
    return found[1] if found else ""
