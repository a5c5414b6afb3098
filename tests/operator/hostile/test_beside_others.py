"""The autoscaler, a user and another scaler write to one model, whose status changes all the time.

The load is synthetic and the time of the autoscaler is counted; API server and writes are real.
"""

import asyncio
import itertools
import random
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cluster.gates.user import MERGE, USER_MANAGER, User, user_of
from cluster.operator_scene import Scene, installed, scene
from yaie_api import names
from yaie_operator.autoscaling.autoscaler import Autoscaler
from yaie_operator.autoscaling.exposition import EngineFigures, RouterFigures
from yaie_operator.autoscaling.scrape import Place
from yaie_operator.monitoring.metrics import Metrics
from yaie_operator.reconcile.observe import Store
from yaie_operator.watch import kinds
from yaie_operator.watch.kube import ChangeQueue, KubeCluster, path_of
from yaie_operator.watch.kube_api import Request

__all__ = ["installed", "scene"]
pytestmark = [pytest.mark.cluster, pytest.mark.drill, pytest.mark.timeout(300)]
WANTED = 4
"""Engines for the load: 35 requests in flight, 10 for each."""
STATUS_EVERY_S = 0.1
FOREIGN_WRITES = 8


class Scaled:
    """An autoscaler on a store that full lists fill, with one router that tells of the load."""

    def __init__(self, cluster: KubeCluster, namespace: str) -> None:
        self.now_s = 0.0
        self.cluster = cluster
        self.namespace = namespace
        self.store = Store()
        self.metrics = Metrics()
        self.autoscaler = Autoscaler(
            cluster, self.store, self.time, metrics=self.metrics,
            wake=lambda _key: None, monotonic=lambda: self.now_s,
        )  # fmt: skip

    def time(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.now_s)

    async def routers(self, pods: Iterable[Place]) -> Mapping[str, RouterFigures | None]:
        return {place.pod: RouterFigures({"demo": 35.0}) for place in pods}

    async def engines(self, pods: Iterable[Place]) -> Mapping[str, EngineFigures | None]:
        return {place.pod: EngineFigures() for place in pods}

    async def look(self) -> None:
        self.now_s += 2.0
        since = self.store.mark()
        models = await self.cluster.list(kinds.INFERENCE_MODEL, namespace=self.namespace)
        self.store.replace(kinds.INFERENCE_MODEL, models, since=since)
        await asyncio.sleep(2 * STATUS_EVERY_S)  # the store is outdated, as a watch's is
        await self.autoscaler.look(self)

    def writes(self) -> float:
        found = self.metrics.registry.get_sample_value(
            "yaie_operator_writes_total", {"kind": "InferenceModel/scale"}
        )
        return found or 0.0


async def _status_changes(user: User) -> None:
    path = f"{path_of(kinds.INFERENCE_MODEL, namespace=user.namespace, name='demo')}/status"
    for number in itertools.count():
        body = {"status": {"endpoint": f"http://changed/{number}"}}
        await user.api.send(Request("PATCH", path, (), body, MERGE))
        await asyncio.sleep(STATUS_EVERY_S)


async def test_no_decision_is_lost_and_nothing_swings(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    rng = random.Random(5)
    async with user_of(scene) as user:
        scaled = Scaled(KubeCluster(user.api, ChangeQueue()), user.namespace)
        scaled.store.replace(kinds.POD, [_router(user.namespace)], since=scaled.store.mark())
        await user.create(
            "demo", autoscaling={"min": 1, "max": WANTED, "target": {"activeRequests": 10}}
        )
        changing = asyncio.create_task(_status_changes(user))
        try:
            for _ in range(10):
                await scaled.look()
            assert await _replicas(user) == WANTED
            for number in range(FOREIGN_WRITES):
                if number % 2:
                    await user.scale("demo", rng.choice([1, 2, 3]))
                else:
                    await user.edit("demo", replicas=rng.choice([1, 2, 3]))
                await user.edit("demo", resources={"cpu": f"{number + 1}"})
                before = scaled.writes()
                for _ in range(3):
                    await scaled.look()
                assert await _replicas(user) == WANTED, f"after foreign write {number}"
                assert scaled.writes() - before == 1, "one answer to one foreign write"
            settled = scaled.writes()
            for _ in range(10):
                await scaled.look()
            assert scaled.writes() == settled, "it swings"
            told = scaled.autoscaler.report(user.namespace, "demo")
            assert told is not None
            overrides = [
                entry["message"]
                for entry in told.scaling["lastDecisions"]
                if entry["reason"] == "ReplicasOverridden"
            ]
            assert overrides
            assert all(f"Another writer ({USER_MANAGER}) set" in one for one in overrides)
            assert "not scaled; tried again" not in caplog.text
            live = await user.get(kinds.INFERENCE_MODEL, "demo")
            assert _owners_of_replicas(live) == {names.FIELD_MANAGER_AUTOSCALER}
        finally:
            changing.cancel()
            await asyncio.gather(changing, return_exceptions=True)


async def _replicas(user: User) -> int:
    return int((await user.get(kinds.INFERENCE_MODEL, "demo"))["spec"]["replicas"])


def _owners_of_replicas(obj: Mapping[str, Any]) -> set[str]:
    entries = obj["metadata"]["managedFields"]
    return {e["manager"] for e in entries if "f:replicas" in e["fieldsV1"].get("f:spec", {})}


def _router(namespace: str) -> dict[str, Any]:
    labels = {
        names.LABEL_MANAGED_BY: names.MANAGED_BY,
        names.LABEL_COMPONENT: names.COMPONENT_ROUTER,
    }
    conditions = [{"type": kind, "status": "True"} for kind in ("PodScheduled", "Ready")]
    metadata = {"name": "router", "namespace": namespace, "uid": "u", "resourceVersion": "1"}
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": metadata | {"labels": labels},
        "spec": {"containers": []}, "status": {"podIP": "192.0.2.1", "conditions": conditions},
    }  # fmt: skip
