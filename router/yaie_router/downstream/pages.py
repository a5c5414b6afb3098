"""What the router answers to people: the pages, and the description of its API."""

from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Final

from aiohttp import web

from yaie_api.http import pages
from yaie_api.http.paths import no_such_path
from yaie_router.downstream.answers import own_headers

_DOCUMENT: Final = "openapi.json"
"""Written by `tools/render_openapi.py`: the router does not load the types that check bodies."""


def page_answer(path: str, headers: Mapping[str, str], request_id: str) -> web.Response:
    """A page for a browser.

    Raises:
        NotFoundError: the client asks for no page, but for an API at this path.

    """
    page = pages.find(path, headers.get("accept", ""))
    if page is None:
        raise no_such_path(path, ())
    found = pages.reply(page, headers.get("if-none-match", ""))
    told = found.headers | own_headers(request_id)
    return web.Response(status=found.status, headers=told, body=found.body)


def openapi_answer(request_id: str) -> web.Response:
    """The OpenAPI document of the router."""
    return web.Response(
        body=_document(),
        content_type="application/json",
        headers=own_headers(request_id),
    )


@cache
def _document() -> bytes:
    return resources.files("yaie_router").joinpath(_DOCUMENT).read_bytes()
