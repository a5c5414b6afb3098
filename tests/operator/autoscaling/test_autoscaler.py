"""The autoscaler on a cluster in memory and on the local API server: what it writes, and when."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fakes.fake_cluster import FakeCluster, inference_model
from fakes.local_double import LocalDouble
from yaie_api import names
from yaie_operator.autoscaling.autoscaler import Autoscaler, count
from yaie_operator.autoscaling.exposition import EngineFigures, RouterFigures
from yaie_operator.autoscaling.history import Engines
from yaie_operator.autoscaling.scrape import Place
from yaie_operator.cluster import Object, RefusedError, UnreachableError
from yaie_operator.config import OperatorConfig
from yaie_operator.monitoring.metrics import Metrics
from yaie_operator.reconcile.observe import Ref, Store
from yaie_operator.reconcile.reconciler import Reconciler
from yaie_operator.watch import kinds

MODEL = Ref(names.KIND, "ns", "demo")
AUTOSCALING = {"min": 1, "max": 4, "target": {"activeRequests": 10}}


def pod(name: str, *, model: str = "", ready: bool = True, **metadata: Any) -> Object:
    component = names.COMPONENT_ENGINE if model else names.COMPONENT_ROUTER
    labels = {names.LABEL_MANAGED_BY: names.MANAGED_BY, names.LABEL_COMPONENT: component}
    conditions = [
        {"type": "PodScheduled", "status": "True"},
        {"type": "Ready", "status": str(ready)},
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": f"uid-{name}",
            "resourceVersion": "1",
            "labels": labels | ({names.LABEL_MODEL: model} if model else {}),
            **metadata,
        },
        "spec": {"containers": []},
        "status": {"podIP": "10.0.0.1", "conditions": conditions},
    }


class World:
    """A cluster, the operator's store, the autoscaler, and the pages that its pods would serve."""

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster
        self.now_s = 0.0
        self.in_flight = 0.0
        self.silent: set[str] = set()
        self.woken: list[str] = []
        self.running = 1
        self.restart()

    def restart(self) -> None:
        self.store = Store()
        self.metrics = Metrics()
        self.autoscaler = Autoscaler(
            self.cluster, self.store, self.time, metrics=self.metrics,
            wake=self.woken.append, monotonic=lambda: self.now_s,
        )  # fmt: skip
        self.reconciler = Reconciler(
            self.cluster, self.store, OperatorConfig(), self.time, metrics=self.metrics,
            wake=self.woken.append, scaling=self.autoscaler.report,
        )  # fmt: skip

    def time(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.now_s)

    async def routers(self, pods: Iterable[Place]) -> Mapping[str, RouterFigures | None]:
        figures = RouterFigures({"demo": self.in_flight})
        return {place.pod: None if place.pod in self.silent else figures for place in pods}

    async def engines(self, pods: Iterable[Place]) -> Mapping[str, EngineFigures | None]:
        figures = EngineFigures()
        return {place.pod: None if place.pod in self.silent else figures for place in pods}

    async def observe(self) -> None:
        for kind in (*kinds.WRITTEN, kinds.INFERENCE_MODEL):
            since = self.store.mark()
            self.store.replace(kind, await self.cluster.list(kind), since=since)
        since = self.store.mark()
        engines = [pod(f"demo-{i}", model="demo") for i in range(self.running)]
        self.store.replace(kinds.POD, [pod("router-0"), *engines], since=since)

    async def look(self, seconds: float = 2.0) -> int:
        """Look each two seconds for some time; spec.replicas then. Engines start at once."""
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            self.now_s += 2.0
            await self.observe()
            await self.autoscaler.look(self)
            self.running = await self.replicas()
        return self.running

    async def live(self) -> Object:
        found: Object = await self.cluster.get(kinds.INFERENCE_MODEL, namespace="ns", name="demo")
        return found

    async def replicas(self) -> int:
        return int((await self.live())["spec"].get("replicas", 1))

    async def status(self) -> dict[str, Any]:
        await self.observe()
        await self.reconciler.reconcile("model/ns/demo")
        status: dict[str, Any] = (await self.live())["status"]
        return status

    async def condition(self) -> tuple[str, str]:
        found = {c["type"]: c for c in (await self.status())["conditions"]}["ScalingActive"]
        return found["status"], found["reason"]

    def scaled(self) -> list[tuple[str, str]]:
        return [write for write in self.cluster.writes if write[0] == "scale"]


@pytest.fixture(params=["fake", "local"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return World(FakeCluster() if request.param == "fake" else LocalDouble(tmp_path))


async def test_replicas_follow_the_load_and_the_status_says_why(world: World) -> None:
    world.cluster.put(inference_model(autoscaling=AUTOSCALING))
    assert await world.look() == 1
    world.in_flight = 35.0
    assert await world.look(40) == 4
    scaling = (await world.status())["scaling"]
    assert scaling["desired"] == 4
    newest = scaling["lastDecisions"][0]
    assert (newest["to"], newest["reason"], newest["target"]) == (
        4, "AboveTarget", "activeRequests",
    )  # fmt: skip
    assert newest["inputs"]["activeRequests"] == 35.0
    assert await world.condition() == ("True", "ByLoad")
    assert ("Normal", "AboveTarget") in [event[:2] for event in world.cluster.events]


async def test_a_model_without_autoscaling_is_never_written(world: World) -> None:
    world.cluster.put(inference_model(replicas=2))
    world.in_flight = 500.0
    assert await world.look(30) == 2
    assert world.scaled() == []
    assert "scaling" not in await world.status()


async def test_a_constant_load_writes_nothing(world: World) -> None:
    world.cluster.put(inference_model(autoscaling=AUTOSCALING))
    world.in_flight = 15.0
    await world.look(60)
    await world.status()
    await world.status()
    world.cluster.writes.clear()
    world.woken.clear()
    await world.look(400)
    await world.status()
    assert (world.cluster.writes, world.woken) == ([], [])


async def test_a_foreign_write_is_decided_again_and_named(world: World) -> None:
    world.cluster.put(inference_model(autoscaling=AUTOSCALING))
    world.in_flight = 25.0
    assert await world.look(300) == 3
    await world.cluster.set_scale(await world.live(), 1)
    assert await world.look() == 3
    decisions = (await world.status())["scaling"]["lastDecisions"]
    assert [(d["from"], d["to"], d["reason"]) for d in decisions[:2]] == [
        (1, 3, "AboveTarget"),
        (3, 1, "ReplicasOverridden"),
    ]
    assert await world.condition() == ("True", "ReplicasOverridden")
    await world.look(301)
    assert await world.condition() == ("True", "ByLoad")


async def test_nothing_is_taken_away_while_a_router_is_silent(world: World) -> None:
    world.cluster.put(inference_model(replicas=4, autoscaling=AUTOSCALING))
    world.running = 4
    world.silent = {"router-0"}
    assert await world.look(600) == 4
    assert await world.condition() == ("False", "MetricsMissing")
    world.silent = set()
    assert await world.look(600) == 1


async def test_zero_and_back(world: World) -> None:
    autoscaling = {**AUTOSCALING, "min": 0, "idleSeconds": 60}
    world.cluster.put(inference_model(autoscaling=autoscaling))
    assert await world.look(58) == 1
    assert await world.look(6) == 0
    world.in_flight = 12.0
    assert await world.look() == 2


async def test_a_suspended_model_keeps_its_replicas(world: World) -> None:
    world.cluster.put(inference_model(replicas=3, suspend=True, autoscaling=AUTOSCALING))
    world.in_flight = 40.0
    assert await world.look(30) == 3
    assert await world.condition() == ("False", "Suspended")


async def test_a_new_leader_goes_on_from_the_status(world: World) -> None:
    world.cluster.put(inference_model(autoscaling=AUTOSCALING))
    world.in_flight = 35.0
    assert await world.look(20) == 4
    told = await world.status()
    world.restart()
    again = await world.status()
    assert again["scaling"] == told["scaling"]
    world.in_flight = 0.0
    assert await world.look(170) == 4, "a whole window has not been seen yet"
    assert await world.look(60) == 1
    assert len((await world.status())["scaling"]["lastDecisions"]) >= 2


async def test_a_status_that_changes_all_the_time_prevents_no_decision(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = FakeCluster()
    world = World(cluster)
    world.cluster.put(inference_model(autoscaling=AUTOSCALING))
    world.in_flight, late, write = 35.0, [0], cluster.set_scale

    async def after_a_change(observed: Object, replicas: int) -> int:
        late[0] += 1
        if late[0] % 3:
            cluster.set_status(MODEL, {"phase": f"change {late[0]}"})
        return await write(observed, replicas)

    monkeypatch.setattr(cluster, "set_scale", after_a_change)
    assert await world.look(20) == 4
    assert late[0] == 3, "tried twice in vain"


async def test_who_sets_replicas_during_a_write_is_not_overwritten_unseen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = FakeCluster()
    world = World(cluster)
    cluster.put(inference_model(autoscaling=AUTOSCALING))
    world.in_flight, write = 35.0, cluster.set_scale

    async def overtaken(observed: Object, replicas: int) -> int:
        monkeypatch.setattr(cluster, "set_scale", write)
        await write(cluster.objects[MODEL], 2)
        return await write(observed, replicas)

    monkeypatch.setattr(cluster, "set_scale", overtaken)
    assert await world.look(20) == 4
    assert "from 2 to 4" in str(await world.status()) or "'from': 2" in str(await world.status())


async def test_a_failed_write_is_tried_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.cluster.put(inference_model(autoscaling=AUTOSCALING))
    world.in_flight = 35.0

    async def away(*_: object) -> int:
        raise UnreachableError("away")

    with monkeypatch.context() as patched:
        patched.setattr(world.cluster, "set_scale", away)
        assert await world.look(10) == 1
    assert await world.look(20) == 4


POLICY = "ValidatingAdmissionPolicy 'fixed' denied request: replicas are fixed"


@pytest.fixture
def refusing() -> World:
    """A world whose API server refuses /scale, under a load that asks for four engines."""
    world = World(FakeCluster())
    world.cluster.put(inference_model(autoscaling=AUTOSCALING))
    world.in_flight = 35.0
    world.cluster.refuse_verbs["scale"] = POLICY
    return world


async def test_a_refused_scale_is_tried_seldom_and_told_in_the_api_servers_words(
    refusing: World,
) -> None:
    assert await refusing.look(3600) == 1
    assert 5 <= len(refusing.scaled()) <= 10
    assert await refusing.condition() == ("False", "Refused")
    conditions = (await refusing.status())["conditions"]
    told = next(c["message"] for c in conditions if c["type"] == "ScalingActive")
    assert POLICY in told
    assert "; change the spec so that this policy admits it, or the policy." in told
    assert len(set(refusing.woken)) == 1
    assert len(refusing.woken) <= 2, "the condition does not change from try to try"


async def test_a_load_that_moves_has_no_more_refused_writes_in_an_hour(refusing: World) -> None:
    for number in range(360):
        refusing.in_flight = (15.0, 35.0, 25.0)[number % 3]
        await refusing.look(10)
    assert len(refusing.scaled()) <= 10


async def test_a_refused_scale_is_written_within_its_wait_when_the_refusal_ends(
    refusing: World,
) -> None:
    await refusing.look(60)
    refusing.cluster.refuse_verbs.clear()
    assert await refusing.look(80) == 4
    assert await refusing.condition() == ("True", "ByLoad")
    decisions = (await refusing.status())["scaling"]["lastDecisions"]
    assert [one["reason"] for one in decisions] == ["AboveTarget"]


async def test_replicas_that_are_not_refused_are_written_at_once(
    refusing: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, write = refusing.cluster, refusing.cluster.set_scale
    cluster.refuse_verbs.clear()

    async def at_most_two(observed: Object, replicas: int) -> int:
        if replicas > 2:
            cluster.writes.append(("scale", "refused"))
            raise RefusedError(POLICY)
        return int(await write(observed, replicas))

    monkeypatch.setattr(cluster, "set_scale", at_most_two)
    assert await refusing.look(600) == 1
    refusing.in_flight = 15.0
    assert await refusing.look(62) == 2
    assert await refusing.condition() == ("True", "ByLoad")
    assert cluster.writes.count(("scale", "refused")) <= 10


async def test_a_refusal_is_told_no_longer_than_something_waits(refusing: World) -> None:
    await refusing.look(20)
    refusing.in_flight = 5.0
    await refusing.look(1860)
    assert await refusing.condition() == ("True", "ByLoad")


async def test_a_new_leader_takes_a_refused_scale_for_no_foreign_write(refusing: World) -> None:
    await refusing.look(20)
    assert await refusing.condition() == ("False", "Refused")
    refusing.restart()
    await refusing.look(20)
    assert (await refusing.status())["scaling"]["lastDecisions"] == []


async def test_the_desired_replicas_are_a_metric_until_the_model_goes(world: World) -> None:
    world.cluster.put(inference_model(autoscaling=AUTOSCALING))
    await world.look()
    labels = {"namespace": "ns", "model": "demo"}
    name = "yaie_operator_desired_replicas"
    assert world.metrics.registry.get_sample_value(name, labels) == 1.0
    world.store.remove(await world.live())
    await world.autoscaler.look(world)
    assert world.metrics.registry.get_sample_value(name, labels) is None


def test_engines_are_counted_by_what_they_will_do() -> None:
    draining = pod("d", model="demo", deletionTimestamp="2026-01-01T00:00:00Z")
    pending = {
        **pod("p", model="demo", ready=False),
        "status": {"conditions": [{"type": "PodScheduled", "status": "False"}]},
    }
    pods = [pod("a", model="demo"), pod("b", model="demo", ready=False), pending, draining]
    assert count(pods, 5) == Engines(current=5, ready=1, starting=1 + 2, blocked=1)
    crash = {"lastState": {"terminated": {"exitCode": 1}}, "restartCount": 3}
    failing = {**pod("f", model="demo", ready=False), "status": {"containerStatuses": [crash]}}
    assert count([pod("a", model="demo"), failing], 2) == Engines(2, ready=1)
    assert count([failing], 1) == Engines(1, blocked=1)
    assert count(pods, 5, are_refused=True) == Engines(5, ready=1, starting=1, blocked=1 + 2)
