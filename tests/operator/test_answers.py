"""What is taken out of the API server's answers, and what is left for kopf."""

import json
from collections.abc import Sequence
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from yaie_operator.cluster import Object, WatchEvent
from yaie_operator.watch.answers import answers


def pod(version: int, name: str = "a") -> dict[str, Any]:
    metadata = {"name": name, "resourceVersion": str(version)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}


def line(kind: str, obj: Object) -> bytes:
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


def bookmark(version: int) -> dict[str, Any]:
    return {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(version)}}}


class Exchange:
    """One answer, in pieces, as kopf reads it; `pushed` is what was taken out of it."""

    def __init__(self, *pieces: bytes, status: int = 200) -> None:
        self._pieces = pieces
        self._status = status
        self.pushed: list[WatchEvent] = []

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=self._status)
        response.content_type = "application/json"
        await response.prepare(request)
        for piece in self._pieces:
            await response.write(piece)
        return response

    async def json(self) -> Any:
        return (await self._get("/"))[0]

    async def watched(self) -> bytes:
        return (await self._get("/?watch=true"))[1]

    async def _get(self, path: str) -> tuple[Any, bytes]:
        app = web.Application()
        app.router.add_get("/", self._answer)
        async with (
            TestServer(app) as server,
            aiohttp.ClientSession(response_class=answers(self.pushed.append)) as session,
            session.get(server.make_url(path)) as response,
        ):
            if "watch" not in path:
                return await response.json(), b""
            return None, b"".join([data async for data in response.content.iter_chunked(1 << 20)])


def lines_of(left: bytes) -> Sequence[Any]:
    return [json.loads(one) for one in left.splitlines()]


async def test_changes_are_pushed_in_order_and_kopf_gets_their_versions() -> None:
    told = [
        WatchEvent("ADDED", pod(5)),
        WatchEvent("MODIFIED", pod(7)),
        WatchEvent("DELETED", pod(9)),
    ]
    exchange = Exchange(b"".join(line(one.type, one.object) for one in told))
    left = lines_of(await exchange.watched())
    assert exchange.pushed == told
    assert left == [bookmark(5), bookmark(7), bookmark(9)]


async def test_a_change_that_arrives_in_pieces_is_one_change() -> None:
    whole = line("ADDED", pod(5)) + line("MODIFIED", pod(6, name="b" * 3000))
    exchange = Exchange(*(whole[at : at + 7] for at in range(0, len(whole), 7)))
    assert lines_of(await exchange.watched()) == [bookmark(5), bookmark(6)]
    assert [change.object["metadata"]["name"] for change in exchange.pushed] == ["a", "b" * 3000]


@pytest.mark.parametrize(
    "told",
    [
        line("ERROR", {"kind": "Status", "code": 410}),
        line("ERROR", pod(5)),
        line("BOOKMARK", pod(5)),
        line("NEWS", pod(5)),
        line("ADDED", {"kind": "Namespace", "metadata": {"name": "a", "resourceVersion": "5"}}),
        line("ADDED", {"kind": "Pod", "metadata": {"name": "a"}}),
        line("ADDED", {"kind": "Pod", "metadata": None}),
        line("ADDED", {"kind": ["Pod"], "metadata": {"resourceVersion": "5"}}),
        b"[]\n",
        b"\n",
        b'{"type": "ADDED", "object": null}\n',
        b'{"type": "ADDED", "obj\n',
        line("ADDED", pod(5))[:-9],
    ],
)
async def test_what_is_not_understood_is_kopfs(told: bytes) -> None:
    exchange = Exchange(told)
    assert await exchange.watched() == told
    assert exchange.pushed == []


async def test_what_is_not_understood_keeps_its_place_between_changes() -> None:
    error = line("ERROR", {"kind": "Status", "code": 410})
    exchange = Exchange(line("ADDED", pod(5)), error, line("ADDED", pod(6)))
    left = lines_of(await exchange.watched())
    assert left == [bookmark(5), json.loads(error), bookmark(6)]


async def test_the_objects_of_a_list_are_pushed_with_their_kind() -> None:
    items = [{"metadata": pod(version)["metadata"]} for version in (5, 6)]
    metadata = {"resourceVersion": "8", "continue": "more"}
    answer = {"apiVersion": "v1", "kind": "PodList", "metadata": metadata, "items": items}
    exchange = Exchange(json.dumps(answer).encode())
    assert await exchange.json() == answer | {"items": []}
    assert exchange.pushed == [WatchEvent("ADDED", pod(5)), WatchEvent("ADDED", pod(6))]


async def test_the_objects_of_a_list_come_without_what_nobody_reads() -> None:
    written = {"manager": "kubelet", "operation": "Update", "fieldsV1": {"f:spec": {}}}
    listed = pod(7)
    listed["metadata"]["managedFields"] = [written]
    answer = {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": [listed]}
    exchange = Exchange(json.dumps(answer).encode())
    assert await exchange.json() == {**answer, "items": []}
    assert exchange.pushed == [WatchEvent("ADDED", pod(7))]


async def test_an_answer_that_is_no_json_is_an_error_that_kopf_knows() -> None:
    with pytest.raises(json.JSONDecodeError):
        await Exchange(b"<html>a proxy's page</html>").json()


@pytest.mark.parametrize(
    "answer",
    [
        {"kind": "APIResourceList", "resources": [{"name": "pods", "kind": "Pod"}]},
        {"kind": "NamespaceList", "items": [{"metadata": {"name": "a"}}]},
        {"kind": "Status", "code": 403, "message": "no"},
        {"items": [1]},
        ["1.34"],
    ],
)
async def test_any_other_answer_stays_as_it_is(answer: Any) -> None:
    exchange = Exchange(json.dumps(answer).encode())
    assert await exchange.json() == answer
    assert exchange.pushed == []


async def test_a_refused_watch_is_kopfs() -> None:
    refusal = line("ADDED", pod(5))
    exchange = Exchange(refusal, status=403)
    assert await exchange.watched() == refusal
    assert exchange.pushed == []
