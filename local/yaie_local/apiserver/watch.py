"""Watches of the REST API: one JSON line per change."""

import asyncio
import contextlib
import json
import math
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web

from yaie_local.apiserver.store import Event, ExpiredError, Store
from yaie_local.kinds import Resource
from yaie_local.objects import matches
from yaie_operator.cluster import Object

DEFAULT_S: Final = 300.0
BOOKMARK_S: Final = 30.0


@dataclass(frozen=True)
class Wanted:
    """The objects that a watch selects."""

    resource: Resource
    namespace: str | None
    labels: Mapping[str, str]

    def covers(self, obj: Object) -> bool:
        kind = self.resource.kind
        return (
            (obj["apiVersion"], obj["kind"]) == (kind.api_version, kind.kind)
            and self.namespace in (None, obj["metadata"].get("namespace", ""))
            and matches(obj, self.labels)
        )


async def stream(request: web.Request, store: Store, wanted: Wanted) -> web.StreamResponse:
    """Send changes after `resourceVersion` until the client disconnects or `timeoutSeconds` pass.

    Without a resourceVersion, all objects are sent first, as ADDED. If the version is too old, one
    ERROR line with code 410 is sent.

    Raises:
        HTTPBadRequest: timeoutSeconds is not a number.

    """
    limit_s = _limit_s(request.query.get("timeoutSeconds", ""))
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    with contextlib.suppress(TimeoutError, ConnectionResetError):  # the client disconnected
        version = await _first_version(request, response, store, wanted)
        async with asyncio.timeout(limit_s):
            await _copy(response, store, wanted, version)
    return response


def _limit_s(given: str) -> float:
    try:
        limit_s = float(given or DEFAULT_S)
    except ValueError:
        limit_s = math.nan
    if not 0.0 <= limit_s < math.inf:
        raise web.HTTPBadRequest(text="timeoutSeconds: write a number of seconds, such as 300")
    return limit_s


async def _first_version(
    request: web.Request, response: web.StreamResponse, store: Store, wanted: Wanted
) -> int:
    """The version to continue from; without one from the client, first send all objects."""
    given = request.query.get("resourceVersion", "")
    if given not in ("", "0"):
        return int(given) if given.isdigit() else -1
    version = store.version
    kind = wanted.resource.kind
    for obj in store.list(kind, namespace=wanted.namespace, labels=wanted.labels):
        await _send(response, "ADDED", obj)
    return version


async def _copy(response: web.StreamResponse, store: Store, wanted: Wanted, version: int) -> None:
    try:
        async with contextlib.aclosing(_with_bookmarks(store, version, wanted)) as lines:
            async for kind, obj in lines:
                await _send(response, kind, obj)
    except ExpiredError as error:
        from yaie_local.apiserver.api import status_body

        await _send(response, "ERROR", status_body(410, str(error)))


async def _with_bookmarks(
    store: Store, version: int, wanted: Wanted
) -> AsyncGenerator[tuple[str, Mapping[str, Any]]]:
    """Changes, and a BOOKMARK with the current version after each BOOKMARK_S without a write."""
    events: asyncio.Queue[Event | ExpiredError] = asyncio.Queue()

    async def feed() -> None:
        try:
            async with contextlib.aclosing(store.follow(version)) as changes:
                async for event in changes:
                    events.put_nowait(event)
        except ExpiredError as error:
            events.put_nowait(error)

    feeding = asyncio.create_task(feed())
    try:
        while True:
            try:
                async with asyncio.timeout(BOOKMARK_S):
                    event = await events.get()
            except TimeoutError:
                yield "BOOKMARK", _bookmark(store, wanted)
                continue
            if isinstance(event, ExpiredError):
                raise event
            if wanted.covers(event.change.object):
                yield event.change.type, event.change.object
    finally:
        feeding.cancel()


def _bookmark(store: Store, wanted: Wanted) -> dict[str, Any]:
    kind = wanted.resource.kind
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"resourceVersion": str(store.version)},
    }


async def _send(response: web.StreamResponse, kind: str, obj: Mapping[str, Any]) -> None:
    line = json.dumps({"type": kind, "object": obj}, separators=(",", ":"))
    await response.write(line.encode() + b"\n")
