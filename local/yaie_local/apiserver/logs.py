"""The log subresource of pods: the last lines, and new output while the client follows."""

import contextlib
from pathlib import Path

from aiohttp import web

from yaie_local import logfile


async def respond(request: web.Request, path: Path) -> web.StreamResponse:
    """Send the last `tailLines` lines of a log (default: all), and with `follow=true` new output
    until the client disconnects.

    Raises:
        HTTPBadRequest: tailLines is not a whole number.

    """
    lines = request.query.get("tailLines")
    if lines is not None and not lines.isdigit():
        raise web.HTTPBadRequest(text="tailLines: write a whole number")
    response = web.StreamResponse(headers={"Content-Type": "text/plain; charset=utf-8"})
    await response.prepare(request)
    with contextlib.suppress(ConnectionResetError):  # the client disconnected
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
