"""The operator's port on the local store."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from fakes.local_objects import model, obj, verbs
from yaie_api import names
from yaie_local.cluster import LocalCluster
from yaie_local.kinds import EVENTS
from yaie_operator.cluster import Cluster, ConflictError, NotFoundError, RefusedError, WatchEvent
from yaie_operator.watch import kinds

OURS = {"labels": {names.LABEL_MANAGED_BY: names.MANAGED_BY}}


def local(folder: Path, now: float = 0.0) -> LocalCluster:
    return LocalCluster(verbs(folder), clock=lambda: now)


def test_it_is_a_cluster(tmp_path: Path) -> None:
    cluster: Cluster = local(tmp_path)
    assert cluster is not None


async def test_apply_creates_and_then_needs_the_observed_object(tmp_path: Path) -> None:
    cluster = local(tmp_path)
    first = await cluster.apply(obj(data={"a": "1"}), observed=None)
    with pytest.raises(ConflictError):
        await cluster.apply(obj(data={"a": "2"}), observed=None)
    second = await cluster.apply(obj(data={"a": "2"}), observed=first)
    with pytest.raises(ConflictError):
        await cluster.apply(obj(data={"a": "3"}), observed=first)
    assert await cluster.apply(obj(data={"a": "2"}), observed=second) == second


async def test_an_observed_object_that_is_gone_is_a_conflict(tmp_path: Path) -> None:
    cluster = local(tmp_path)
    first = await cluster.apply(obj(), observed=None)
    await cluster.delete(first)
    with pytest.raises(ConflictError):
        await cluster.apply(obj(), observed=first)
    with pytest.raises(NotFoundError):
        await cluster.delete(first)


async def test_get_and_list_see_the_same(tmp_path: Path) -> None:
    cluster = local(tmp_path)
    made = await cluster.apply(obj(metadata=OURS), observed=None)
    assert await cluster.get(kinds.CONFIG_MAP, namespace="default", name="a") == made
    assert await cluster.get(kinds.CONFIG_MAP, namespace="default", name="b") is None
    assert await cluster.list(kinds.CONFIG_MAP, labels=OURS["labels"]) == [made]
    assert await cluster.list(kinds.CONFIG_MAP, namespace="other") == []


async def test_a_bad_model_is_refused_with_the_message(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=r"spec\.replicas"):
        await local(tmp_path).apply(model(replicas=-1), observed=None)


async def test_status_needs_the_model_as_last_seen(tmp_path: Path) -> None:
    cluster = local(tmp_path)
    seen = await cluster.apply(model(), observed=None)
    patched = await cluster.patch_status(seen, {"phase": "Ready"})
    assert patched["status"]["phase"] == "Ready"
    with pytest.raises(ConflictError):
        await cluster.patch_status(seen, {"phase": "Starting"})


async def test_the_watch_tells_models_and_ours_only(tmp_path: Path) -> None:
    cluster = local(tmp_path)
    seen: list[WatchEvent] = []

    async def watch() -> None:
        async for change in cluster.watch():
            seen.append(change)  # noqa: PERF401 - the watch never ends; the test looks meanwhile

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0)
    await cluster.apply(obj(name="foreign"), observed=None)
    await cluster.apply(obj(name="ours", metadata=OURS), observed=None)
    await cluster.apply(model(), observed=None)
    await asyncio.sleep(0.05)
    watching.cancel()
    assert [c.object["metadata"]["name"] for c in seen] == ["ours", "demo"]


async def test_the_same_event_counts_up_and_old_ones_are_forgotten(tmp_path: Path) -> None:
    now = 0.0
    made = verbs(tmp_path)
    cluster = LocalCluster(made, clock=lambda: now)
    about = await cluster.apply(model(), observed=None)
    told: dict[str, Any] = {"severity": "Normal", "reason": "Ready", "message": "all is well"}
    await cluster.emit(about, **told)
    now = 60.0
    await cluster.emit(about, **told)
    (event,) = made.store.list(EVENTS.kind)
    assert (event["count"], event["lastTimestamp"]) == (2, "1970-01-01T00:01:00Z")
    assert event["involvedObject"]["uid"] == about["metadata"]["uid"]
    now = 4000.0
    await cluster.emit(about, **{**told, "message": "other"})
    assert [e["message"] for e in made.store.list(EVENTS.kind)] == ["other"]
