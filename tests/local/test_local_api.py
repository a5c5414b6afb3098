import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fakes.local_machine import apply, machine_in, pods, ready, until
from fakes.local_objects import deployment, model, obj
from yaie_local.apiserver import store as store_module
from yaie_local.apiserver.api import APPLY, MERGE
from yaie_local.machine import Machine

MAPS = "/api/v1/namespaces/default/configmaps"
MODELS = "/apis/yaie.dev/v1alpha1/namespaces/default/inferencemodels"


class Client:
    """Speaks to a machine's socket; `call` gives status and JSON."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self.session = session

    async def call(
        self, method: str, path: str, body: Any = None, kind: str = "application/json"
    ) -> tuple[int, Any]:
        data = body if isinstance(body, str | None) else json.dumps(body)
        headers = {"Content-Type": kind} if data is not None else {}
        async with self.session.request(method, path, data=data, headers=headers) as response:
            return response.status, json.loads(await response.read())

    async def apply(self, path: str, body: Any, query: str = "?force=true") -> tuple[int, Any]:
        return await self.call("PATCH", path + query, body, APPLY)


@contextlib.asynccontextmanager
async def served(folder: Path) -> AsyncIterator[tuple[Machine, Client]]:
    async with machine_in(folder) as machine:
        connector = aiohttp.UnixConnector(str(machine.state.socket))
        async with aiohttp.ClientSession("http://localhost", connector=connector) as session:
            yield machine, Client(session)


async def test_objects_are_created_read_listed_and_deleted(tmp_path: Path) -> None:
    async with served(tmp_path) as (_, client):
        assert (await client.call("POST", MAPS, obj(data={"a": "1"})))[0] == 201
        assert (await client.call("GET", f"{MAPS}/a"))[1]["data"] == {"a": "1"}
        _, listed = await client.call("GET", MAPS)
        assert (listed["kind"], len(listed["items"])) == ("ConfigMapList", 1)
        assert int(listed["metadata"]["resourceVersion"]) >= 1
        assert (await client.call("GET", "/api/v1/configmaps"))[1]["items"] == listed["items"]
        assert (await client.call("DELETE", f"{MAPS}/a"))[0] == 200
        assert (await client.call("GET", f"{MAPS}/a"))[0] == 404


async def test_apply_takes_yaml_creates_and_merges(tmp_path: Path) -> None:
    async with served(tmp_path) as (_, client):
        text = "metadata: {name: a}\ndata: {x: '1'}\n"
        assert (await client.apply(f"{MAPS}/a", text))[0] == 201
        status, found = await client.apply(f"{MAPS}/a", "metadata: {name: a}\ndata: {y: '2'}\n")
        assert (status, found["data"]) == (200, {"y": "2"})


async def test_a_dry_run_checks_and_stores_nothing(tmp_path: Path) -> None:
    async with served(tmp_path) as (machine, client):
        assert (await client.apply(f"{MODELS}/demo", model(), "?dryRun=All"))[0] in (200, 201)
        status, said = await client.apply(f"{MODELS}/demo", model(replicas=-1), "?dryRun=All")
        assert (status, said["reason"]) == (422, "Invalid")
        assert "spec.replicas" in said["message"]
        assert machine.verbs.store.version == 0


async def test_a_merge_patch_respects_the_resource_version(tmp_path: Path) -> None:
    async with served(tmp_path) as (_, client):
        _, made = await client.call("POST", MAPS, obj(data={"a": "1", "b": "2"}))
        patch = {"data": {"a": None, "c": "3"}}
        _, found = await client.call("PATCH", f"{MAPS}/a", patch, MERGE)
        assert found["data"] == {"b": "2", "c": "3"}
        stale = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "data": {}}
        assert (await client.call("PATCH", f"{MAPS}/a", stale, MERGE))[0] == 409


async def test_scale_reads_and_writes_replicas(tmp_path: Path) -> None:
    async with served(tmp_path) as (_, client):
        await client.apply(f"{MODELS}/demo", model())
        _, scale = await client.call("GET", f"{MODELS}/demo/scale")
        assert (scale["kind"], scale["spec"]) == ("Scale", {"replicas": 1})
        body = {"spec": {"replicas": 3}}
        _, scale = await client.call("PATCH", f"{MODELS}/demo/scale", body, MERGE)
        assert scale["spec"] == {"replicas": 3}
        stale = {**body, "metadata": {"resourceVersion": "1"}}
        assert (await client.call("PATCH", f"{MODELS}/demo/scale", stale, MERGE))[0] == 409
        too_many = {"spec": {"replicas": 5000}}
        assert (await client.call("PATCH", f"{MODELS}/demo/scale", too_many, MERGE))[0] == 422


async def test_status_is_written_apart_from_the_spec(tmp_path: Path) -> None:
    async with served(tmp_path) as (_, client):
        await client.apply(f"{MODELS}/demo", model())
        body = {"status": {"phase": "Ready"}, "spec": {"replicas": 9}}
        _, found = await client.call("PATCH", f"{MODELS}/demo/status", body, MERGE)
        assert (found["status"]["phase"], found["spec"]["replicas"]) == ("Ready", 1)
        assert found["metadata"]["generation"] == 1
        _, again = await client.apply(f"{MODELS}/demo", {**model(), "status": {"phase": "No"}})
        assert again["status"]["phase"] == "Ready"


WRONG = [
    ("POST", MAPS, "{", "application/json", 400),
    ("POST", MAPS, "[]", "application/json", 400),
    ("POST", MAPS, "{}", "application/json", 422),
    ("POST", MAPS, json.dumps(obj("Secret")), "application/json", 422),
    ("PATCH", f"{MAPS}/a", "a: [", APPLY, 400),
    ("PATCH", f"{MAPS}/b", json.dumps(obj()), APPLY, 422),
    ("PATCH", f"{MAPS}/a", "{}", "application/json", 415),
    ("PATCH", f"{MAPS}/a", "{}", MERGE, 404),
    ("PATCH", f"{MODELS}/a/scale", '{"spec": {"replicas": "x"}}', MERGE, 422),
    ("PATCH", f"{MAPS}/a/status", "{}", MERGE, 404),
    ("GET", "/api/v1/namespaces/default/nothings", None, "", 404),
    ("GET", f"{MAPS}/a/log", None, "", 404),
    ("GET", f"{MAPS}?labelSelector=a!=b", None, "", 400),
    *(
        ("GET", f"{MAPS}?watch=true&timeoutSeconds={n}", None, "", 400)
        for n in ("soon", "nan", "-1")
    ),
    ("GET", "/nowhere", None, "", 404),
    ("DELETE", f"{MAPS}/a", None, "", 404),
]


async def test_what_is_wrong_gets_a_status_with_a_message(tmp_path: Path) -> None:
    async with served(tmp_path) as (_, client):
        for method, path, body, kind, status in WRONG:
            found, said = await client.call(method, path, body, kind)
            assert (found, said["kind"], said["code"]) == (status, "Status", status), path
            assert said["message"]


async def lines(client: Client, path: str, into: list[Any]) -> None:
    async with client.session.get(path) as response:
        async for line in response.content:
            event = json.loads(line)
            into.append(event)


async def test_a_watch_goes_on_where_the_list_ended(tmp_path: Path) -> None:
    async with served(tmp_path) as (machine, client):
        apply(machine, obj(name="before", metadata={"labels": {"x": "1"}}))
        _, listed = await client.call("GET", f"{MAPS}?labelSelector=x=1")
        version = listed["metadata"]["resourceVersion"]
        seen: list[Any] = []
        path = f"{MAPS}?watch=true&labelSelector=x%3D1&resourceVersion={version}"
        watching = asyncio.create_task(lines(client, path, seen))
        apply(machine, obj(name="other"), obj(name="a", metadata={"labels": {"x": "1"}}))
        machine.verbs.delete(obj(name="before"))
        await until(lambda: len(seen) == 2)
        watching.cancel()
        told = [(e["type"], e["object"]["metadata"]["name"]) for e in seen]
        assert told == [("ADDED", "a"), ("DELETED", "before")]


async def test_a_watch_without_a_version_begins_with_what_is_there(tmp_path: Path) -> None:
    async with served(tmp_path) as (machine, client):
        apply(machine, obj(name="a"))
        seen: list[Any] = []
        await asyncio.wait_for(lines(client, f"{MAPS}?watch=true&timeoutSeconds=0.2", seen), 5)
        assert [(e["type"], e["object"]["metadata"]["name"]) for e in seen] == [("ADDED", "a")]


async def test_a_version_that_is_too_old_is_told_as_410(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "HISTORY_EVENTS", 1)
    async with served(tmp_path) as (machine, client):
        apply(machine, obj(name="a"), obj(name="b"), obj(name="c"))
        seen: list[Any] = []
        path = f"{MAPS}?watch=true&resourceVersion=1"
        await asyncio.wait_for(lines(client, path, seen), 5)
        assert [(e["type"], e["object"]["code"]) for e in seen] == [("ERROR", 410)]


async def test_a_quiet_watch_sends_bookmarks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("yaie_local.apiserver.watch.BOOKMARK_S", 0.05)
    async with served(tmp_path) as (machine, client):
        seen: list[Any] = []
        await asyncio.wait_for(lines(client, f"{MAPS}?watch=true&timeoutSeconds=0.3", seen), 5)
        assert {e["type"] for e in seen} == {"BOOKMARK"}
        assert seen[0]["object"]["metadata"]["resourceVersion"] == str(machine.verbs.store.version)


async def test_logs_are_tailed_and_followed(tmp_path: Path) -> None:
    async with served(tmp_path) as (machine, client):
        apply(machine, deployment(flags=("--linger", "0.2")))
        await until(lambda: ready(machine))
        name = pods(machine)[0]["metadata"]["name"]
        path = f"/api/v1/namespaces/default/pods/{name}/log"
        async with client.session.get(f"{path}?tailLines=0") as response:
            assert await response.text() == ""
        async with client.session.get(f"{path}?follow=true") as response:
            assert b"started" in await response.content.readline()
            machine.verbs.delete(pods(machine)[0])
            line = await asyncio.wait_for(response.content.readline(), 10)
            assert line == b"ending politely\n"
        assert (await client.call("GET", f"{path}?tailLines=x"))[0] in (400, 404)


async def test_deleting_a_pod_with_no_grace_kills_it_at_once(tmp_path: Path) -> None:
    async with served(tmp_path) as (machine, client):
        apply(machine, deployment(flags=("--deaf",), pod={"terminationGracePeriodSeconds": 300}))
        await until(lambda: ready(machine))
        name = pods(machine)[0]["metadata"]["name"]
        body = {"gracePeriodSeconds": 0}
        await client.call("DELETE", f"/api/v1/namespaces/default/pods/{name}", body)
        await until(lambda: name not in {p["metadata"]["name"] for p in pods(machine)}, timeout_s=5)


async def test_only_the_user_may_open_the_socket(tmp_path: Path) -> None:
    async with served(tmp_path) as (machine, _):
        assert machine.state.socket.stat().st_mode & 0o077 == 0
    assert not machine.state.socket.exists()
