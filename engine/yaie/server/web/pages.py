"""The pages for people on the public port. They need no key: what they ask the API for does."""

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from yaie_api.http import pages
from yaie_api.http.paths import no_such_path


def add_pages(app: FastAPI) -> None:
    """Let the application answer with the pages."""
    for path in (pages.CHAT, pages.DOCS):
        app.add_api_route(path, _page, methods=list(pages.METHODS), response_model=None)


async def _page(request: Request) -> Response:
    page = pages.find(request.scope["path"], request.headers.get("accept", ""))
    if page is None:
        raise no_such_path(request.url.path, ())
    found = pages.reply(page, request.headers.get("if-none-match", ""))
    return Response(found.body, found.status, found.headers)
