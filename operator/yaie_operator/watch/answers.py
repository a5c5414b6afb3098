"""Takes the objects out of the API server's answers, on their way to kopf.

kopf asks for lists and watches, asks again when one ends, and never gives up. What it would do next
with each object (a worker with a queue, three loggers, a dozen registries) only ends in our `push`,
and costs several times what reading it does. So kopf gets what it needs to go on: a list without
items, and in the place of each event a bookmark with its resourceVersion. What is not understood
here goes to kopf as it came, and kopf's handler pushes it.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any, Final, Literal

import aiohttp
import msgspec

from yaie_operator.cluster import WatchEvent
from yaie_operator.watch.kinds import BY_NAME
from yaie_operator.watch.slim import slim

Push = Callable[[WatchEvent], None]


class Change(msgspec.Struct):
    """A line of a watch that tells of an object. The others are bookmarks, and errors that kopf
    must see.
    """

    type: Literal["ADDED", "MODIFIED", "DELETED"]
    object: dict[str, Any]


_CHANGE: Final = msgspec.json.Decoder(Change)


def answers(push: Push) -> type[aiohttp.ClientResponse]:
    """A class of responses that give the objects of lists and watches to `push`. A change is pushed
    before kopf learns of its version: after a fault in between it comes again, and is not lost.
    """

    class Response(aiohttp.ClientResponse):
        async def start(self, connection: Any) -> aiohttp.ClientResponse:
            await super().start(connection)
            if self.ok and "watch" in self.url.query:
                self.content = WatchBody(self.content, push)  # type: ignore[assignment]
            return self

        async def json(self, **rest: Any) -> Any:
            try:
                found = msgspec.json.decode(await self.read())
            except msgspec.DecodeError:
                found = await super().json(**rest)  # whose errors kopf knows
            return _without_items(found, push)

    return Response


class WatchBody:
    """The body of a watch's answer. Iterated by chunks, as kopf does, it gives what is left for
    kopf; in all else it is the stream that it reads.
    """

    def __init__(self, content: aiohttp.StreamReader, push: Push) -> None:
        self._content = content
        self._push = push

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        rest = b""
        async for data in self._content.iter_chunked(size):
            *lines, rest = (rest + data).split(b"\n")
            if lines:
                yield b"".join(left + b"\n" for left in _left(lines, self._push))
        if rest:
            yield rest


def _left(lines: Iterable[bytes], push: Push) -> Iterator[bytes]:
    """Push the changes in these lines; what is left for kopf."""
    for line in lines:
        try:
            change = _CHANGE.decode(line)
            version = change.object["metadata"]["resourceVersion"]
            is_watched = change.object["kind"] in BY_NAME
        except (msgspec.DecodeError, LookupError, TypeError):
            is_watched = False
        if is_watched:
            push(WatchEvent(change.type, change.object))
            bookmark = {"metadata": {"resourceVersion": version}}
            yield msgspec.json.encode({"type": "BOOKMARK", "object": bookmark})
        else:
            yield line


def _without_items(found: Any, push: Push) -> Any:
    """Push the objects of a list; the list without them. Any other answer stays as it is. Objects
    are made small first: all lists of a start wait to be taken at one time.
    """
    if not isinstance(found, dict) or "items" not in found:
        return found
    kind = BY_NAME.get(str(found.get("kind")).removesuffix("List"))
    if kind is None:
        return found
    typed = {"apiVersion": kind.api_version, "kind": kind.kind}  # which the items of a list lack
    for item in found["items"]:
        push(WatchEvent("ADDED", slim({**item, **typed})))
    return {**found, "items": []}
