"""kopf itself, when the objects have been taken out of what it is answered."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from yaie_operator.cluster import Kind, WatchEvent
from yaie_operator.watch import kinds, kopf_watcher
from yaie_operator.watch.kopf_watcher import Watcher
from yaie_operator.watch.kube import path_of

NAMESPACE = Kind("v1", "Namespace", "namespaces")
"""kopf waits until the API server knows it."""


class Api:
    """An API server with the kinds that are watched. Watches of Services are `told` what they
    answer, one after another; all others stay open and silent.
    """

    def __init__(self, *told: list[dict[str, Any]]) -> None:
        self.asked: list[str | None] = []
        """The versions after which Services were watched."""
        self._told = list(told)
        self._ended = asyncio.Event()
        self._watched = (kinds.INFERENCE_MODEL, *kinds.WATCHED)
        app = web.Application()
        app.router.add_get("/version", self._version)
        app.router.add_get("/api", self._core)
        app.router.add_get("/apis", self._groups)
        for version in {kind.api_version for kind in self._watched}:
            root = path_of(Kind(version, "", "")).rstrip("/")
            app.router.add_get(root, self._resources)
            app.router.add_get(f"{root}/{{plural}}", self._objects)
        self.server = TestServer(app)

    async def end(self) -> None:
        self._ended.set()
        await self.server.close()

    async def _version(self, _: web.Request) -> web.Response:
        return web.json_response({"major": "1", "minor": "34"})

    async def _core(self, _: web.Request) -> web.Response:
        return web.json_response({"kind": "APIVersions", "versions": ["v1"]})

    async def _groups(self, _: web.Request) -> web.Response:
        versions = sorted({kind.api_version for kind in self._watched} - {"v1"})
        groups = [
            {"name": one.partition("/")[0], "preferredVersion": version, "versions": [version]}
            for one in versions
            for version in [{"groupVersion": one, "version": one.partition("/")[2]}]
        ]
        return web.json_response({"kind": "APIGroupList", "groups": groups})

    async def _resources(self, request: web.Request) -> web.Response:
        version = request.path.removeprefix("/apis/").removeprefix("/api/")
        resources = [
            {
                "name": kind.plural,
                "singularName": "",
                "kind": kind.kind,
                "namespaced": True,
                "verbs": ["list", "watch"],
            }
            for kind in (*self._watched, NAMESPACE)
            if kind.api_version == version
        ]
        return web.json_response({"kind": "APIResourceList", "resources": resources})

    async def _objects(self, request: web.Request) -> web.StreamResponse:
        is_service = request.path == "/api/v1/services"
        if "watch" in request.query:
            return await self._watch(request, is_service=is_service)
        items = [{"metadata": {"name": "listed", "resourceVersion": "3"}}] if is_service else []
        kind = next(one.kind for one in self._watched if request.path.endswith(one.plural))
        found = {"kind": f"{kind}List", "metadata": {"resourceVersion": "4"}, "items": items}
        return web.json_response(found)

    async def _watch(self, request: web.Request, *, is_service: bool) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        if is_service:
            self.asked.append(request.query.get("resourceVersion"))
        if not is_service or not self._told:
            await self._ended.wait()
            return response
        for line in self._told.pop(0):
            await response.write(json.dumps(line).encode() + b"\n")
        return response


def service(version: int) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "a", "uid": "1", "resourceVersion": str(version)},
    }


def kubeconfig_of(server: str, folder: Path) -> str:
    config = {
        "current-context": "it",
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "me"}}],
        "clusters": [{"name": "it", "cluster": {"server": server}}],
        "users": [{"name": "me", "user": {"token": "secret"}}],
    }
    file = folder / "kubeconfig"
    file.write_text(json.dumps(config))
    return str(file)


async def test_kopf_goes_on_after_the_last_change_and_lists_again_when_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handled: list[Any] = []

    async def handler(event: Any, **_: Any) -> None:
        handled.append(event)

    monkeypatch.setattr(kopf_watcher, "_handler", lambda _kind, _push: handler)
    gone = {"type": "ERROR", "object": {"kind": "Status", "code": 410}}
    changes = [{"type": "MODIFIED", "object": service(version)} for version in (5, 7)]
    api = Api([*changes], [gone])
    await api.server.start_server()
    pushed: list[WatchEvent] = []
    kubeconfig = kubeconfig_of(str(api.server.make_url("")).rstrip("/"), tmp_path)
    running = Watcher(pushed.append, kubeconfig=kubeconfig, namespaces=())
    running.start()
    try:
        async with asyncio.timeout(40):
            while len(api.asked) < 3:  # noqa: ASYNC110 - kopf is in a thread of its own
                await asyncio.sleep(0.02)
    finally:
        await asyncio.to_thread(running.stop)
        await api.end()
    assert api.asked[:3] == ["4", "7", "4"]
    told = [(one.type, one.object["metadata"]["resourceVersion"]) for one in pushed]
    assert told[:4] == [("ADDED", "3"), ("MODIFIED", "5"), ("MODIFIED", "7"), ("ADDED", "3")]
    assert handled == []
