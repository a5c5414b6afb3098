"""Every field of every child is changed, removed or added by somebody else: it is repaired, or
named in a condition, within seconds.

The edits are generated from the children as they are stored. What the API server refuses itself is
no drift. By default some of them are tried; YAIE_DRIFTS=all tries every one.
"""

import asyncio
import contextlib
import copy
import os
import random
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from cluster.gates.user import SHARED, User, seconds_until, user_of
from cluster.operator_scene import Scene, installed, kubeconfig, operator, scene, until
from yaie_api import names
from yaie_operator.cluster import ConflictError, Kind, NotFoundError, RefusedError
from yaie_operator.watch import kinds
from yaie_operator.watch.kube import path_of
from yaie_operator.watch.kube_api import Request

__all__ = ["installed", "kubeconfig", "scene"]
pytestmark = [pytest.mark.cluster, pytest.mark.drill, pytest.mark.timeout(1800)]
REPAIR_S = 5.0
SAMPLE = 30
JSON_PATCH: Final = "application/json-patch+json"
Path_ = tuple[str | int, ...]

SERVERS: Final = frozenset(
    {"status", "managedFields", "uid", "resourceVersion", "generation", "creationTimestamp",
     "apiVersion", "kind", "name", "namespace"}
)  # fmt: skip
"""What the API server owns; at the top, and in the metadata of an object."""

THEIRS: Final = {
    ("metadata", "annotations", "deployment.kubernetes.io/revision"): "the controller's own",
    ("metadata", "labels", "stray"): "labels of others are theirs",
    ("metadata", "annotations", "stray"): "annotations of others are theirs",
}
"""Edits that stay."""

NEW_KEY: Final = {("data",), ("data", "prefix-key")}
"""Of the router's Secret: a key that is removed is gone, and another one is made."""


@dataclass(frozen=True)
class Edit:
    """One JSON patch of one child."""

    child: tuple[Kind, str]
    op: str
    path: Path_
    value: Any = None

    def __str__(self) -> str:
        return f"{self.op} {'.'.join(map(str, self.path))} of {self.child[0].kind} {self.child[1]}"

    @property
    def patch(self) -> list[dict[str, Any]]:
        steps = (str(step).replace("~", "~0").replace("/", "~1") for step in self.path)
        one = {"op": self.op, "path": "/" + "/".join(steps)}
        return [one if self.op == "remove" else one | {"value": self.value}]


def edits_of(child: tuple[Kind, str], obj: Mapping[str, Any]) -> Iterator[Edit]:
    """Change and remove each field, and add one to each map of strings."""
    for path, value in _fields(obj, ()):
        if path in THEIRS:
            continue
        if not (child[0] == kinds.SECRET and path in NEW_KEY):
            yield Edit(child, "remove", path)
        if isinstance(value, str | int | bool):
            yield Edit(child, "replace", path, _other(value))
        elif (*path, "stray") in THEIRS:
            continue
        elif isinstance(value, Mapping) and all(isinstance(v, str) for v in value.values()):
            yield Edit(child, "add", (*path, "stray"), "c3RyYXk=" if path == ("data",) else "stray")


def _fields(value: Any, path: Path_) -> Iterator[tuple[Path_, Any]]:
    below: Iterator[tuple[str | int, Any]] = iter(())
    if isinstance(value, Mapping):
        below = iter(value.items())
    elif isinstance(value, list):
        below = iter(enumerate(value))
    for step, item in below:
        if step in SERVERS and path in {(), ("metadata",)}:
            continue
        if (*path, step) != ("metadata",):
            yield (*path, step), item
        yield from _fields(item, (*path, step))


def _other(value: str | int | bool) -> Any:
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int) else f"{value}x"


def test_edits_are_made_from_the_object_itself() -> None:
    child = (kinds.SERVICE, "demo")
    spec = {"type": "ClusterIP", "selector": {"a": "b"}, "ports": [{"port": 80}]}
    obj = {"kind": "Service", "metadata": {"name": "demo", "uid": "u"}, "spec": spec}
    told = {str(edit) for edit in edits_of(child, obj)}
    assert {
        "remove spec of Service demo", "replace spec.type of Service demo",
        "add spec.selector.stray of Service demo", "replace spec.ports.0.port of Service demo",
    } <= told  # fmt: skip
    assert not any("uid" in edit or "kind" in edit for edit in told)


async def test_whatever_others_do_to_a_child_is_repaired_or_named(
    scene: Scene, kubeconfig: Path, tmp_path: Path, record_property: Any
) -> None:
    with operator(kubeconfig, tmp_path):
        scene.apply()
        await asyncio.to_thread(scene.becomes, "EnginesReady", "False", "Unschedulable")
        await asyncio.to_thread(until, lambda: names.ROUTER in scene.names("deployments"))
        async with user_of(scene) as user:
            children = await _children(user)
            edits = [e for child, obj in children.items() for e in edits_of(child, obj)]
            total = len(edits)
            if os.environ.get("YAIE_DRIFTS") != "all":
                edits = random.Random(11).sample(edits, SAMPLE)
            outcomes = [(edit, await _outcome(user, edit)) for edit in edits]
    lost = [f"{edit}: {how}" for edit, how in outcomes if how.startswith("LOST")]
    for how in ("refused", "repaired", "named"):
        record_property(how, sum(found.startswith(how) for _, found in outcomes))
    record_property("edits", f"{len(edits)} of {total}")
    assert not lost, "\n".join(lost)


async def _children(user: User) -> dict[tuple[Kind, str], dict[str, Any]]:
    wanted = [
        (child.kind, child.name or "demo") for child in (*kinds.OF_MODEL, *kinds.OF_NAMESPACE)
    ]
    found = {child: await user.get(*child) for child in wanted}
    return {child: obj for child, obj in found.items() if obj}


async def _outcome(user: User, edit: Edit) -> str:
    """What becomes of an edit: refused (by the API server), repaired, named, or LOST."""
    kind, name = edit.child
    found = await user.get(kind, name)
    before, uid = _contents(found), found["metadata"]["uid"]
    path = path_of(kind, namespace=user.namespace, name=name)
    try:
        after = await user.api.send(Request("PATCH", path, (), edit.patch, JSON_PATCH))
    except (RefusedError, ConflictError, NotFoundError) as error:
        return f"refused: {error}"
    if _contents(after) == before:
        return "refused: it changes nothing"
    began = time.monotonic()
    while time.monotonic() - began < REPAIR_S:
        if _is_mended(await user.get(kind, name), before, uid):
            return "repaired"
        await asyncio.sleep(0.05)
    told = await _named(user, name)
    live = _contents(await user.get(kind, name))
    result = f"named: {told}" if told else f"LOST: {_differences(before, live)}"
    await _undo(user, edit, before)
    return result


async def _named(user: User, name: str) -> str:
    status = (await user.get(kinds.INFERENCE_MODEL, "demo")).get("status", {})
    bad = (c for c in status.get("conditions", ()) if c["status"] == "False")
    told = (c["message"] for c in bad if c["reason"] in {"NameConflict", "Refused"})
    return next((message for message in told if f" {name}" in message), "")


async def _undo(user: User, edit: Edit, before: dict[str, Any]) -> None:
    """Put the fields back, so that the next edit begins from an object as it should be. What the
    garbage collector has taken meanwhile, because its owner was edited, the operator creates.
    """
    kind, name = edit.child
    path = path_of(kind, namespace=user.namespace, name=name)

    async def is_back() -> bool:
        if not (live := await user.get(kind, name)):
            return False
        if _is_mended(live, before, uid=""):
            return True
        version = {"resourceVersion": live["metadata"]["resourceVersion"]}
        body = {**before, "metadata": {**before["metadata"], "name": name, **version}}
        with contextlib.suppress(RefusedError, ConflictError, NotFoundError):
            await user.api.send(Request("PUT", path, (), body))
        return False

    await seconds_until(is_back, f"{edit} cannot be undone")
    await asyncio.sleep(1.0)


def _is_mended(live: dict[str, Any], before: dict[str, Any], uid: str) -> bool:
    """Whether an object is as before. A Service that was created again has another address."""
    if not live:
        return False
    one, other = _contents(live), copy.deepcopy(before)
    if live["metadata"]["uid"] != uid and live["kind"] == "Service":
        for key in ("clusterIP", "clusterIPs"):
            one["spec"].pop(key, None)
            other["spec"].pop(key, None)
    return one == other


def _contents(obj: dict[str, Any]) -> dict[str, Any]:
    """An object without what changes by itself."""
    if not obj:
        return {}
    kept = copy.deepcopy({key: value for key, value in obj.items() if key != "status"})
    for key in ("managedFields", "resourceVersion", "generation", "uid", "creationTimestamp"):
        kept["metadata"].pop(key, None)
    kept["metadata"].get("annotations", {}).pop("deployment.kubernetes.io/revision", None)
    return kept


def _differences(before: Any, live: Any, path: str = "") -> list[str]:
    if isinstance(before, dict) and isinstance(live, dict):
        keys = before.keys() | live.keys()
        return [
            d for k in sorted(keys) for d in _differences(before.get(k), live.get(k), f"{path}.{k}")
        ]
    return [] if before == live else [f"{path}: {before} → {live}"]


async def test_a_deleted_shared_object_comes_back_and_address_and_key_stay_what_they_were(
    scene: Scene, kubeconfig: Path, tmp_path: Path
) -> None:
    """A repair replaces the object in place; what comes after a deletion gets address and key."""
    with operator(kubeconfig, tmp_path):
        scene.apply()
        await asyncio.to_thread(scene.becomes, "EnginesReady", "False", "Unschedulable")
        await asyncio.to_thread(until, lambda: names.ROUTER in scene.names("deployments"))
        async with user_of(scene) as user:
            service, secret = (kinds.SERVICE, names.ROUTER), (kinds.SECRET, names.ROUTER_SECRET)
            address = (await user.get(*service))["spec"]["clusterIP"]
            key = (await user.get(*secret))["data"]
            stray = [
                Edit(service, "add", ("spec", "selector", "stray"), "yes"),
                Edit(secret, "add", ("data", "stray"), "c3RyYXk="),
            ]
            assert [await _outcome(user, edit) for edit in stray] == ["repaired", "repaired"]
            assert (await user.get(*service))["spec"]["clusterIP"] == address
            assert (await user.get(*secret))["data"] == key
            for child in SHARED:
                uid = (await user.get(*child))["metadata"]["uid"]
                path = path_of(child[0], namespace=user.namespace, name=child[1])
                await user.api.send(Request("DELETE", path))
                began = time.monotonic()
                while (await user.get(*child)).get("metadata", {}).get("uid", uid) == uid:
                    assert time.monotonic() - began < REPAIR_S, child
                    await asyncio.sleep(0.05)
            assert (await user.get(*service))["spec"]["clusterIP"] == address
            assert (await user.get(*secret))["data"] == key
