"""Gates on a cluster in memory and on the local API server: what is asked, and what is written."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fakes.fake_cluster import FakeCluster, inference_model
from fakes.local_double import LocalDouble
from yaie_api import names
from yaie_operator.autoscaling.exposition import EngineFigures, RouterFigures
from yaie_operator.autoscaling.scrape import Place
from yaie_operator.gates import Gatekeeper
from yaie_operator.reconcile.observe import Ref, Store
from yaie_operator.watch import kinds

START = datetime(2026, 1, 1, 12, tzinfo=UTC)
STAMP = "2026-01-01T12:00:00Z"


def pod(name: str, *, model: str = "demo", ready: bool = True) -> dict[str, Any]:
    component = names.COMPONENT_ENGINE if model else names.COMPONENT_ROUTER
    labels = {names.LABEL_MANAGED_BY: names.MANAGED_BY, names.LABEL_COMPONENT: component}
    kinds_of = ["PodScheduled", "ContainersReady"]
    kinds_of += ["Ready", names.CONDITION_ROUTED] if ready else []
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": STAMP} for kind in kinds_of
    ]
    gates = {"readinessGates": [{"conditionType": names.CONDITION_ROUTED}]} if model else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "ns",
            "labels": labels | ({names.LABEL_MODEL: model} if model else {}),
        },
        "spec": {"containers": [{"name": "one", "image": "i"}], **gates},
        "status": {"podIP": "10.0.0.1", "conditions": conditions},
    }


class World:
    """A cluster, the operator's store, the gatekeeper, and what the routers say."""

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster
        self.now = START
        self.store = Store()
        self.gatekeeper = Gatekeeper(cluster, self.store, lambda: self.now)
        self.reached: dict[str, frozenset[str] | None] = {"router": frozenset({"old"})}
        self.asked = 0

    def put(self, obj: dict[str, Any]) -> None:
        self.cluster.put(obj)
        if "status" in obj:
            self.cluster.set_status(Ref.of(obj), obj["status"])

    async def look(self) -> None:
        for kind in (kinds.INFERENCE_MODEL, kinds.POD):
            self.store.replace(kind, await self.cluster.list(kind), since=self.store.mark())
        await self.gatekeeper.look(self)

    async def routers(self, pods: Iterable[Place]) -> Mapping[str, RouterFigures | None]:
        self.asked += 1
        return {place.pod: RouterFigures(reached=self.reached[place.pod]) for place in pods}

    async def engines(self, pods: Iterable[Place]) -> Mapping[str, EngineFigures | None]:
        raise AssertionError("nobody asks the engines")

    def gate(self) -> str:
        conditions = self.cluster.objects[Ref("Pod", "ns", "new")]["status"]["conditions"]
        found = (c["reason"] for c in conditions if c["type"] == names.CONDITION_ROUTED)
        return next(found, "")


@pytest.fixture(params=["fake", "local"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    local = LocalDouble(tmp_path) if request.param == "local" else None
    world = World(local or FakeCluster())
    world.put(inference_model())
    world.put(pod("router", model=""))
    yield world
    if local is not None:
        local.close()


async def test_a_new_engine_waits_beside_an_old_one_until_the_router_reaches_it(
    world: World,
) -> None:
    world.put(pod("old"))
    world.put(pod("new", ready=False))
    await world.look()
    assert world.gate() == ""
    world.reached["router"] = frozenset({"old", "new"})
    await world.look()
    assert world.gate() == "Reached"
    others = world.cluster.objects[Ref("Pod", "ns", "new")]["status"]["conditions"]
    assert {"PodScheduled", "ContainersReady"} <= {c["type"] for c in others}
    assert [what for verb, what in world.cluster.writes if verb == "condition"] == ["Pod/new"]


async def test_the_first_engine_waits_for_no_router(world: World) -> None:
    world.put(pod("new", ready=False))
    await world.look()
    assert world.gate() == "NoOtherEngine"
    assert world.asked == 0


async def test_silent_routers_keep_no_engine_waiting_for_ever(world: World) -> None:
    world.put(pod("old"))
    world.put(pod("new", ready=False))
    world.reached["router"] = None
    await world.look()
    assert world.gate() == ""
    world.now += timedelta(seconds=30)
    await world.look()
    assert world.gate() == "NoReport"


async def test_routers_are_asked_only_while_an_engine_waits(world: World) -> None:
    world.put(pod("old"))
    await world.look()
    assert world.asked == 0
    assert not any(verb == "condition" for verb, _ in world.cluster.writes)


async def test_a_pod_that_is_gone_meanwhile_does_no_harm(world: World) -> None:
    world.put(pod("new", ready=False))
    world.store.replace(kinds.POD, await world.cluster.list(kinds.POD), since=world.store.mark())
    world.store.replace(
        kinds.INFERENCE_MODEL, await world.cluster.list(kinds.INFERENCE_MODEL),
        since=world.store.mark(),
    )  # fmt: skip
    world.cluster.remove(Ref("Pod", "ns", "new"))
    await world.gatekeeper.look(world)


async def test_an_unexpected_error_in_one_namespace_does_not_stop_the_others(world: World) -> None:
    """The loop is one of the manager's tasks: an error would end them all."""
    world.put(pod("old"))
    broken = pod("new", ready=False)
    del broken["status"]["conditions"][1]["lastTransitionTime"]
    world.put(broken)
    world.reached["router"] = None
    await world.look()
    assert world.gate() == ""


async def hour(world: World) -> int:
    """Look each second for an hour; the tries to open a gate."""
    world.cluster.writes.clear()
    for _ in range(3600):
        await world.look()
        world.now += timedelta(seconds=1)
    return [verb for verb, _ in world.cluster.writes].count("condition")


async def test_a_refused_gate_is_tried_seldom_told_once_each_time_and_opens_within_its_wait(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = FakeCluster()
    world = World(cluster)
    world.put(inference_model())
    world.put(pod("new", ready=False))
    cluster.refuse_verbs["condition"] = 'User "operator" cannot patch resource "pods/status"'
    tries = await hour(world)
    assert 5 <= tries <= 10
    told = [one for one in caplog.records if one.message.startswith("gate not opened")]
    assert len(told) == tries
    assert "roles again: the operator lacks this right" in str(told[0].__dict__)
    cluster.refuse_verbs.clear()
    for _ in range(1800):
        await world.look()
        world.now += timedelta(seconds=1)
    assert world.gate() == "NoOtherEngine"


async def test_a_new_pod_does_not_wait_for_the_refusals_of_the_one_it_replaces() -> None:
    cluster = FakeCluster()
    world = World(cluster)
    world.put(inference_model())
    world.put(pod("new", ready=False))
    cluster.refuse_verbs["condition"] = "policy"
    await hour(world)
    cluster.refuse_verbs.clear()
    cluster.remove(Ref("Pod", "ns", "new"))
    await world.look()
    world.put(pod("new", ready=False))
    await world.look()
    assert world.gate() == "NoOtherEngine"
