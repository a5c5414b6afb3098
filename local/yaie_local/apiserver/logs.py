"""The log subresource of pods: the last lines, and what follows."""

import contextlib
from pathlib import Path

from aiohttp import web

from yaie_local import logfile


async def respond(request: web.Request, path: Path) -> web.StreamResponse:
    """`tailLines=N` last lines (default: all); `follow=true` goes on until the client leaves.

    Raises:
        HTTPBadRequest: tailLines is not a whole number.

    """
    lines = request.query.get("tailLines")
    if lines is not None and not lines.isdigit():
        raise web.HTTPBadRequest(text="tailLines: write a whole number")
    response = web.StreamResponse(headers={"Content-Type": "text/plain; charset=utf-8"})
    await response.prepare(request)
    with contextlib.suppress(ConnectionResetError):  # the reader has seen enough
        await _copy(request, response, path, None if lines is None else int(lines))
    return response


async def _copy(
    request: web.Request, response: web.StreamResponse, path: Path, lines: int | None
) -> None:
    follower = logfile.Follower(path)
    await response.write(logfile.tail(path, lines))
    if request.query.get("follow") == "true":
        async with contextlib.aclosing(logfile.follow(follower)) as parts:
            async for part in parts:
                await response.write(part)
