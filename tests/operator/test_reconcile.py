import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.fake_cluster import FakeCluster, endpoint_slice, inference_model
from fakes.local_double import LocalDouble
from yaie_api import names
from yaie_operator.cluster import ConflictError, Object, UnreachableError
from yaie_operator.config import OperatorConfig
from yaie_operator.installation import NetworkSettings
from yaie_operator.monitoring.metrics import Metrics
from yaie_operator.reconcile.observe import Ref, Store
from yaie_operator.reconcile.reconciler import Reconciler
from yaie_operator.resources import overlay
from yaie_operator.watch import kinds

MODEL = Ref(names.KIND, "ns", "demo")
DEPLOYMENT = Ref("Deployment", "ns", "demo")
ROUTER = Ref("Deployment", "ns", names.ROUTER)
SERVICE = Ref("Service", "ns", names.ROUTER)
SECRET = Ref("Secret", "ns", names.ROUTER_SECRET)


class World:
    """A cluster, a store that lists fill, and the reconciler between them."""

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster
        self.woken: list[str] = []
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.restart(OperatorConfig())

    def restart(self, config: OperatorConfig) -> None:
        """A new operator process: nothing of the old one's memory is left."""
        self.store = Store()
        self.reconciler = Reconciler(
            self.cluster, self.store, config, lambda: self.now,
            metrics=Metrics(), wake=self.woken.append,
        )  # fmt: skip

    async def look(self) -> None:
        for kind in (*kinds.WATCHED, kinds.INFERENCE_MODEL):
            since = self.store.mark()
            self.store.replace(kind, await self.cluster.list(kind), since=since)

    async def settle(self) -> list[tuple[str, str]]:
        """One pass over every key; the writes that it made."""
        self.cluster.writes.clear()
        await self.look()
        for namespace in self.store.namespaces():
            await self.reconciler.reconcile(f"namespace/{namespace}")
        for model in self.store.models():
            metadata = model["metadata"]
            await self.reconciler.reconcile(f"model/{metadata['namespace']}/{metadata['name']}")
        return list(self.cluster.writes)

    async def make_ready(self) -> None:
        await self.settle()
        self.cluster.make_ready(DEPLOYMENT)
        self.cluster.make_ready(ROUTER)
        await self.settle()

    def status(self, ref: Ref = MODEL) -> dict[str, Any]:
        status: dict[str, Any] = self.cluster.objects[ref]["status"]
        return status

    def condition(self, kind: str, ref: Ref = MODEL) -> tuple[str, str, str]:
        found = next(c for c in self.status(ref)["conditions"] if c["type"] == kind)
        return found["status"], found["reason"], found["message"]


@pytest.fixture(params=["fake", "local"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """A world with one model, over each adapter that needs no API server."""
    local = LocalDouble(tmp_path) if request.param == "local" else None
    world = World(local or FakeCluster())
    world.cluster.put(inference_model())
    yield world
    if local is not None:
        local.close()


@pytest.fixture
def fake_world() -> World:
    """For what only the double in memory can play: refusals, outages, old specs."""
    world = World(FakeCluster())
    world.cluster.put(inference_model())
    return world


async def test_a_new_model_gets_its_children_and_its_namespace_a_router(world: World) -> None:
    await world.settle()
    assert {(ref.kind, ref.name) for ref in world.cluster.objects} == {
        (names.KIND, "demo"), ("Service", "demo"), ("Deployment", "demo"),
        ("PodDisruptionBudget", "demo"),
        ("Secret", names.ROUTER_SECRET),
        ("ServiceAccount", names.ROUTER), ("RoleBinding", names.ROUTER),
        ("Service", names.ROUTER), ("Deployment", names.ROUTER),
    }  # fmt: skip


async def test_a_pod_that_cannot_be_recorded_is_told_and_nothing_is_written(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overlay, "MOST_BYTES", 1024)
    await world.settle()
    status, reason, message = world.condition("Accepted")
    assert (status, reason) == ("False", "InvalidSpec")
    assert "put long values of engine.env" in message
    assert DEPLOYMENT not in world.cluster.objects


async def test_a_second_pass_writes_nothing(world: World) -> None:
    await world.settle()
    await world.settle()
    assert await world.settle() == []


async def test_a_restarted_operator_writes_nothing(world: World) -> None:
    await world.make_ready()
    world.restart(OperatorConfig())
    assert await world.settle() == []


async def test_an_upgraded_operator_with_new_images_restarts_the_router_but_no_engine(
    world: World,
) -> None:
    await world.make_ready()
    before = world.cluster.objects[DEPLOYMENT]
    world.restart(OperatorConfig(engine_image="engine:2", router_image="control-plane:2"))
    writes = await world.settle()
    assert [w for w in writes if w[0] == "apply"] == [("apply", f"Deployment/{names.ROUTER}")]
    assert world.cluster.objects[DEPLOYMENT] is before


async def test_a_changed_spec_takes_the_new_default_image(world: World) -> None:
    await world.make_ready()
    world.restart(OperatorConfig(engine_image="engine:2"))
    world.cluster.put(inference_model(engine={"maxNumSeqs": 8}))
    await world.settle()
    container = world.cluster.objects[DEPLOYMENT]["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == "engine:2"
    assert container["args"][-2:] == ["--max-num-seqs", "8"]


async def test_the_model_becomes_ready_when_engines_and_router_are(world: World) -> None:
    await world.settle()
    assert world.condition("Ready")[:2] == ("False", "Creating")
    assert world.status()["phase"] == "Starting"
    await world.make_ready()
    assert world.condition("Ready")[:2] == ("True", "AllReady")
    assert world.condition("Available")[:2] == ("True", "Reachable")
    assert world.status()["ready"] == "1/1"
    assert world.status()["phase"] == "Ready"
    assert world.status()["endpoint"] == "http://yaie-router.ns.svc:8000/v1"


async def test_scaling_changes_replicas_and_nothing_of_the_pods(world: World) -> None:
    await world.make_ready()
    template = world.cluster.objects[DEPLOYMENT]["spec"]["template"]
    world.cluster.put(inference_model(replicas=2))
    await world.settle()
    spec = world.cluster.objects[DEPLOYMENT]["spec"]
    assert (spec["replicas"], spec["template"]) == (2, template)
    assert world.condition("Ready")[0] == "False"
    assert world.status()["ready"] == "1/2"


async def test_suspending_stops_the_engines_and_says_so(world: World) -> None:
    world.cluster.put(inference_model(replicas=3, suspend=True))
    await world.settle()
    assert world.cluster.objects[DEPLOYMENT]["spec"]["replicas"] == 0
    assert world.condition("Ready")[:2] == ("False", "Suspended")


async def test_a_model_scaled_to_zero_is_ready_and_idle(world: World) -> None:
    world.cluster.put(inference_model(replicas=0))
    await world.make_ready()
    assert world.condition("Ready")[:2] == ("True", "Idle")
    assert world.condition("Available")[:2] == ("False", "NoEngine")


@pytest.mark.parametrize("kind", ["Service", "Deployment"])
async def test_a_foreign_object_under_a_childs_name_is_never_touched(
    world: World, kind: str
) -> None:
    spec = {"foreign": True, "template": {"spec": {"containers": [{"name": "theirs"}]}}}
    foreign = {
        "apiVersion": {"Service": "v1", "Deployment": "apps/v1"}[kind], "kind": kind,
        "metadata": {"name": "demo", "namespace": "ns"}, "spec": spec,
    }  # fmt: skip
    world.cluster.put(foreign)
    await world.settle()
    assert world.cluster.objects[Ref(kind, "ns", "demo")]["spec"] == spec
    assert world.condition("Accepted")[:2] == ("False", "NameConflict")
    assert f"{kind} demo" in world.condition("Accepted")[2]
    other = {"Service": "Deployment", "Deployment": "Service"}[kind]
    assert Ref(other, "ns", "demo") not in world.cluster.objects
    assert await world.settle() == []


async def test_a_conflict_ends_when_the_foreign_object_is_gone(world: World) -> None:
    ref = Ref("Service", "ns", "demo")
    world.cluster.put(
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "demo", "namespace": "ns"}}
    )
    await world.settle()
    again_s = await world.reconciler.reconcile("model/ns/demo")
    assert again_s == OperatorConfig().recheck_s
    world.cluster.remove(ref)
    await world.make_ready()
    assert world.condition("Ready")[0] == "True"
    assert ("Warning", "NameConflict") in [event[:2] for event in world.cluster.events]


async def test_a_foreign_router_is_reported_and_left_alone(world: World) -> None:
    foreign = {
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": names.ROUTER, "namespace": "ns"}, "spec": {"foreign": True},
    }  # fmt: skip
    world.cluster.put(foreign)
    await world.settle()
    assert world.cluster.objects[Ref("Service", "ns", names.ROUTER)]["spec"] == {"foreign": True}
    assert ROUTER not in world.cluster.objects
    assert world.condition("RouterReady")[:2] == ("False", "NameConflict")


async def test_a_refused_child_is_told_in_the_api_servers_words(fake_world: World) -> None:
    fake_world.cluster.refuse["Deployment"] = "exceeded quota: pods"
    await fake_world.settle()
    status, reason, message = fake_world.condition("Accepted")
    assert (status, reason) == ("False", "Refused")
    said = "Deployment demo: exceeded quota: pods; raise this quota, or delete what uses it up."
    assert f"refused what the model needs: {said}" in message
    assert fake_world.condition("EnginesReady")[1:] == (
        "Refused", f"There are no engines: {message}",
    )  # fmt: skip
    del fake_world.cluster.refuse["Deployment"]
    assert ("apply", "Deployment/demo") not in await fake_world.settle()
    fake_world.now += timedelta(seconds=11)
    await fake_world.settle()
    assert fake_world.condition("Accepted")[0] == "True"


async def test_refused_writes_wait_longer_each_time_and_a_changed_spec_does_not(
    fake_world: World,
) -> None:
    fake_world.cluster.refuse["Deployment"] = "exceeded quota: pods"
    tries = 0
    for _ in range(360):
        tries += ("apply", "Deployment/demo") in await fake_world.settle()
        fake_world.now += timedelta(seconds=10)
    assert 5 <= tries <= 10
    fake_world.cluster.put(inference_model(resources={"cpu": "2"}))
    assert ("apply", "Deployment/demo") in await fake_world.settle()


async def test_of_two_models_with_one_name_the_older_serves_it(fake_world: World) -> None:
    await fake_world.settle()
    fake_world.cluster.put(inference_model("young", model={"servedName": "demo"}))
    await fake_world.settle()
    young = Ref(names.KIND, "ns", "young")
    status, reason, message = fake_world.condition("Accepted", young)
    assert (status, reason) == ("False", "NameTaken")
    assert "InferenceModel demo" in message
    assert Ref("Deployment", "ns", "young") not in fake_world.cluster.objects
    assert fake_world.condition("Accepted")[0] == "True"
    fake_world.cluster.remove(MODEL)
    await fake_world.settle()
    assert fake_world.condition("Accepted", young)[0] == "True"
    assert Ref("Deployment", "ns", "young") in fake_world.cluster.objects


async def test_a_refused_router_wakes_the_models_which_report_it(fake_world: World) -> None:
    fake_world.cluster.refuse["RoleBinding"] = "not allowed to bind"
    await fake_world.settle()
    assert set(fake_world.woken) == {"model/ns/demo"}
    await fake_world.reconciler.reconcile("model/ns/demo")
    assert fake_world.condition("RouterReady")[1] == "Refused"
    assert "not allowed to bind" in fake_world.condition("RouterReady")[2]


async def test_a_spec_of_another_version_is_reported_with_its_field(fake_world: World) -> None:
    fake_world.cluster.put(inference_model(novelty=True))
    await fake_world.settle()
    assert fake_world.condition("Accepted")[:2] == ("False", "InvalidSpec")
    assert fake_world.condition("Accepted")[2].startswith("spec.novelty:")
    assert fake_world.status()["phase"] == "Invalid"


async def test_the_router_outlives_every_model_but_the_last(world: World) -> None:
    await world.settle()
    world.cluster.put(inference_model("second"))
    await world.settle()
    world.cluster.remove(MODEL)
    writes = await world.settle()
    assert {verb for verb, _ in writes} <= {"status", "event"}
    world.cluster.remove(Ref(names.KIND, "ns", "second"))
    assert {verb for verb, _ in await world.settle()} == {"delete"}
    assert world.cluster.objects == {}


async def test_nothing_is_deleted_while_a_live_list_has_a_model(world: World) -> None:
    """The store may lack a model whose event is late, or that a wrong list did not have."""
    await world.make_ready()
    world.store.forget(MODEL)
    world.cluster.writes.clear()
    await world.reconciler.reconcile("namespace/ns")
    assert world.cluster.writes == []
    assert "namespace/ns" in world.woken
    assert [model["metadata"]["name"] for model in world.store.models("ns")] == ["demo"]


async def test_a_foreign_object_with_a_shared_name_survives_the_last_model(world: World) -> None:
    world.cluster.put(
        {
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": names.ROUTER, "namespace": "ns"}, "spec": {"foreign": True},
        }
    )  # fmt: skip
    await world.settle()
    world.cluster.remove(MODEL)
    await world.settle()
    assert set(world.cluster.objects) == {SERVICE}


async def test_an_edit_that_overtakes_a_status_is_acted_on_at_once(world: World) -> None:
    """The status meets a conflict although the watch has brought the newer model already: the
    model stays known, and its namespace keeps its models.
    """
    await world.make_ready()
    patch = world.cluster.patch_status

    async def overtaken(observed: Any, status: Any) -> Any:
        world.cluster.patch_status = patch
        model = inference_model(replicas=3)
        world.cluster.put({**model, "metadata": {**observed["metadata"], **model["metadata"]}})
        return await patch(observed, status)

    world.cluster.patch_status = overtaken
    world.cluster.put(inference_model(replicas=2))
    await world.look()
    with pytest.raises(ConflictError):
        await world.reconciler.reconcile("model/ns/demo")
    assert [model["spec"]["replicas"] for model in world.store.models("ns")] == [3]
    await world.reconciler.reconcile("model/ns/demo")
    assert world.cluster.objects[DEPLOYMENT]["spec"]["replicas"] == 3


async def test_a_model_that_is_being_deleted_is_left_alone(fake_world: World) -> None:
    model = inference_model()
    model["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    fake_world.cluster.put(model)
    assert await fake_world.settle() == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: d["spec"].update(replicas=7),
        lambda d: d["spec"]["template"]["spec"]["containers"][0].update(args=["--evil"]),
        lambda d: d["metadata"].update(ownerReferences=d["metadata"]["ownerReferences"], labels={}),
        lambda d: d["metadata"]["annotations"].clear(),
    ],
    ids=["replicas", "args", "labels", "annotations"],
)
async def test_drift_of_a_child_is_mended(
    world: World, damage: Callable[[dict[str, Any]], None]
) -> None:
    await world.make_ready()
    wanted = world.cluster.objects[DEPLOYMENT]["spec"]
    deployment = await world.cluster.get(kinds.DEPLOYMENT, namespace="ns", name="demo")
    assert isinstance(deployment, dict)
    damage(deployment)
    world.cluster.put(deployment)
    await world.settle()
    await world.settle()
    assert world.cluster.objects[DEPLOYMENT]["spec"] == wanted
    assert await world.settle() == []


@pytest.mark.parametrize(
    ("ref", "field", "damage"),
    [
        (DEPLOYMENT, {"f:template": {"f:spec": {"f:hostNetwork": {}}}},
         lambda d: d["spec"]["template"]["spec"].update(hostNetwork=True)),
        (DEPLOYMENT,
         {"f:template": {"f:spec": {"f:initContainers": {'k:{"name":"x"}': {".": {}}}}}},
         lambda d: d["spec"]["template"]["spec"].update(initContainers=[{"name": "x"}])),
        (DEPLOYMENT,
         {"f:template": {"f:spec": {"f:containers": {'k:{"name":"engine"}': {
             "f:env": {'k:{"name":"LD_PRELOAD"}': {".": {}}}}}}}},
         lambda d: d["spec"]["template"]["spec"]["containers"][0]["env"].append(
             {"name": "LD_PRELOAD", "value": "/x.so"})),
        (Ref("Service", "ns", "demo"), {"f:selector": {"f:stray": {}}},
         lambda d: d["spec"]["selector"].update(stray="yes")),
    ],
    ids=["hostNetwork", "initContainers", "env", "selector"],
)  # fmt: skip
async def test_what_others_add_to_a_child_is_removed(
    world: World, ref: Ref, field: dict[str, Any], damage: Callable[[dict[str, Any]], None]
) -> None:
    if "f:initContainers" in str(field) and isinstance(world.cluster, LocalDouble):
        pytest.skip("the local API server refuses init containers")
    await world.make_ready()
    wanted = world.cluster.objects[ref]["spec"]
    live = await world.cluster.get(kinds.BY_NAME[ref.kind], namespace=ref.namespace, name=ref.name)
    assert isinstance(live, dict)
    damage(live)
    entry = {"manager": "kubectl-edit", "operation": "Update", "fieldsV1": {"f:spec": field}}
    live["metadata"].setdefault("managedFields", []).append(entry)
    live["metadata"]["labels"]["of"] = "somebody"
    world.cluster.put(live)
    assert ("replace", f"{ref.kind}/{ref.name}") in await world.settle()
    assert world.cluster.objects[ref]["spec"] == wanted
    assert world.cluster.objects[ref]["metadata"]["labels"]["of"] == "somebody"
    assert "replace" not in [verb for verb, _ in await world.settle()]


async def test_a_selectors_foreign_key_is_removed_even_if_no_writer_is_known(world: World) -> None:
    ref = Ref("Service", "ns", "demo")
    await world.make_ready()
    wanted = world.cluster.objects[ref]["spec"]
    live = await world.cluster.get(kinds.SERVICE, namespace="ns", name="demo")
    assert isinstance(live, dict)
    live["spec"]["selector"] = {**live["spec"]["selector"], "stray": "yes"}
    live["metadata"].pop("managedFields", None)
    world.cluster.put(live)
    assert ("replace", "Service/demo") in await world.settle()
    assert world.cluster.objects[ref]["spec"] == wanted


async def test_ready_ends_with_the_last_endpoint_and_comes_back_with_it(world: World) -> None:
    await world.make_ready()
    world.cluster.put(endpoint_slice("demo", []))
    await world.settle()
    assert world.condition("Ready")[:2] == ("False", "NoEndpoint")
    world.cluster.put(endpoint_slice("demo", ["demo-1"]))
    await world.settle()
    assert world.condition("Ready")[:2] == ("True", "AllReady")


async def test_the_routers_key_survives_every_change(world: World) -> None:
    await world.settle()
    ref = Ref("Secret", "ns", names.ROUTER_SECRET)
    key = world.cluster.objects[ref]["data"]
    secret = await world.cluster.get(kinds.SECRET, namespace="ns", name=names.ROUTER_SECRET)
    assert isinstance(secret, dict)
    secret["metadata"]["labels"] = {}
    world.cluster.put(secret)
    await world.settle()
    assert world.cluster.objects[ref]["data"] == key
    assert world.cluster.objects[ref]["metadata"]["labels"]


def with_address(world: World, address: str) -> None:
    service = world.cluster.objects[SERVICE]
    world.cluster.put({**service, "spec": {**service["spec"], "clusterIP": address}})


async def test_a_deleted_service_and_secret_come_back_with_their_address_and_key(
    fake_world: World,
) -> None:
    world = fake_world
    await world.settle()
    with_address(world, "10.0.0.7")
    await world.settle()
    key = world.cluster.objects[SECRET]["data"]
    for lost in (SERVICE, SECRET):
        world.cluster.remove(lost)
        await world.settle()
    assert world.cluster.objects[SERVICE]["spec"]["clusterIP"] == "10.0.0.7"
    assert world.cluster.objects[SECRET]["data"] == key
    assert await world.settle() == []


async def test_an_address_that_the_api_server_refuses_is_given_up(fake_world: World) -> None:
    world = fake_world
    await world.settle()
    with_address(world, "10.0.0.7")
    await world.settle()
    world.cluster.remove(SERVICE)
    world.cluster.refuse["Service"] = "spec.clusterIPs: failed to allocate: already allocated"
    await world.settle()
    world.cluster.refuse.clear()
    world.now += timedelta(seconds=60)
    await world.settle()
    assert "clusterIP" not in world.cluster.objects[SERVICE]["spec"]


async def test_the_address_and_key_of_a_namespace_end_with_its_last_model(
    fake_world: World,
) -> None:
    world = fake_world
    await world.settle()
    with_address(world, "10.0.0.7")
    await world.settle()
    key = world.cluster.objects[SECRET]["data"]
    world.cluster.remove(MODEL)
    await world.settle()
    assert SERVICE not in world.cluster.objects
    world.cluster.put(inference_model())
    await world.settle()
    assert "clusterIP" not in world.cluster.objects[SERVICE]["spec"]
    assert world.cluster.objects[SECRET]["data"] != key


async def test_a_stale_view_is_a_conflict_and_the_next_look_is_live(world: World) -> None:
    await world.make_ready()
    world.cluster.put(inference_model(replicas=2))
    world.store.replace(
        kinds.INFERENCE_MODEL, await world.cluster.list(kinds.INFERENCE_MODEL), since=0
    )
    world.cluster.set_status(DEPLOYMENT, {"replicas": 1})  # the store has not seen this
    with pytest.raises(ConflictError):
        await world.reconciler.reconcile("model/ns/demo")
    await world.reconciler.reconcile("model/ns/demo")
    assert world.cluster.objects[DEPLOYMENT]["spec"]["replicas"] == 2


async def test_an_unreachable_api_server_is_raised_to_the_queue(fake_world: World) -> None:
    await fake_world.look()
    fake_world.cluster.is_away = True
    with pytest.raises(UnreachableError):
        await fake_world.reconciler.reconcile("model/ns/demo")


async def test_transition_times_move_on_flips_only_and_each_flip_has_an_event(
    world: World,
) -> None:
    await world.make_ready()
    events = len(world.cluster.events)
    world.now = datetime(2026, 1, 2, tzinfo=UTC)
    world.cluster.set_status(
        DEPLOYMENT, {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1}
    )
    await world.settle()
    times = {c["type"]: c["lastTransitionTime"] for c in world.status()["conditions"]}
    flipped = {"EnginesReady", "Progressing", "Available", "Ready"}
    assert {kind for kind, time in times.items() if time.startswith("2026-01-02")} == flipped
    assert len(world.cluster.events) - events == len(flipped)


class SilentOnce(FakeCluster):
    """Its API server stores a status, and then the connection breaks."""

    breaks = False

    async def patch_status(self, observed: Object, status: Object) -> Object:
        stored = await super().patch_status(observed, status)
        if self.breaks:
            self.breaks = False
            raise UnreachableError("timed out")
        return stored


async def test_events_of_a_status_that_was_stored_without_an_answer_are_not_lost() -> None:
    cluster = SilentOnce()
    world = World(cluster)
    cluster.put(inference_model())
    await world.make_ready()
    told = len(cluster.events)
    cluster.set_status(DEPLOYMENT, {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1})
    cluster.breaks = True
    with pytest.raises(UnreachableError):
        await world.settle()
    assert len(cluster.events) == told
    assert {verb for verb, _ in await world.settle()} == {"event"}
    assert len(cluster.events) == told + 4
    assert await world.settle() == []


VARIABLES = [{"name": name, "value": value} for name, value in (("A", "1"), ("HF_HOME", ""))]
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "replicas": st.integers(0, 5),
        "suspend": st.booleans(),
        "engine": st.fixed_dictionaries(
            {},
            optional={
                "args": st.lists(st.sampled_from(["--enforce-eager", "--seed=1"]), max_size=3),
                "env": st.lists(st.sampled_from(VARIABLES), unique_by=str, max_size=3),
                "maxNumSeqs": st.sampled_from([1, 256]),
            },
        ),
        "resources": st.fixed_dictionaries(
            {},
            optional={
                "cpu": st.sampled_from(["1000m", "1", "0.5"]),
                "memory": st.sampled_from(["1024Mi", "1Gi"]),
                "gpu": st.just({"count": 1}),
                "tolerations": st.just([{"operator": "Exists"}]),
            },
        ),
        "rollout": st.fixed_dictionaries(
            {}, optional={"drainSeconds": st.integers(0, 9), "maxUnavailable": st.integers(0, 2)}
        ),
    },
)


@settings(max_examples=50, deadline=None)
@given(specs=st.lists(SPECS, min_size=1, max_size=4))
def test_any_sequence_of_specs_ends_in_silence(
    specs: list[dict[str, Any]],
) -> None:
    async def play() -> None:
        world = World(FakeCluster())
        for spec in specs:
            world.cluster.put(inference_model(**spec))
            await world.settle()
            await world.make_ready()
            assert await world.settle() == []
            world.restart(OperatorConfig())
            assert await world.settle() == []

    asyncio.run(play())


WHOLE = OperatorConfig(router_replicas=2, network=NetworkSettings())
POLICIES = {("NetworkPolicy", name) for name in (names.ROUTER, names.ENGINES, names.WEIGHTS)}
BUDGET = ("PodDisruptionBudget", names.ROUTER)


def optional_children(world: World) -> set[tuple[str, str]]:
    kinds_of = {"NetworkPolicy", "PodDisruptionBudget"}
    found = (ref for ref in world.cluster.objects if ref.name != "demo")
    return {(ref.kind, ref.name) for ref in found if ref.kind in kinds_of}


async def test_policies_and_budgets_come_and_go_with_the_settings_that_want_them(
    world: World,
) -> None:
    world.restart(WHOLE)
    await world.settle()
    assert optional_children(world) == {*POLICIES, BUDGET}
    assert await world.settle() == []
    world.restart(OperatorConfig(network=NetworkSettings()))
    await world.settle()
    assert optional_children(world) == POLICIES
    world.restart(OperatorConfig())
    await world.settle()
    assert optional_children(world) == set()
    assert await world.settle() == []


async def test_a_policy_that_others_open_or_delete_is_put_back(world: World) -> None:
    world.restart(WHOLE)
    await world.settle()
    engines = Ref("NetworkPolicy", "ns", names.ENGINES)
    wanted = world.cluster.objects[engines]["spec"]
    await world.settle()
    world.cluster.put({**world.cluster.objects[engines], "spec": {**wanted, "ingress": [{}]}})
    await world.settle()
    assert world.cluster.objects[engines]["spec"] == wanted
    world.cluster.remove(engines)
    await world.settle()
    assert world.cluster.objects[engines]["spec"] == wanted


async def test_policies_and_budgets_go_with_the_last_model(world: World) -> None:
    world.restart(WHOLE)
    await world.settle()
    world.cluster.remove(MODEL)
    await world.look()
    await world.reconciler.reconcile("namespace/ns")
    assert optional_children(world) == set()


async def test_a_policy_of_somebody_else_is_told_where_ours_is_wanted_and_is_left_alone(
    world: World,
) -> None:
    theirs = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": names.ENGINES, "namespace": "ns"},
        "spec": {"podSelector": {}},
    }
    world.cluster.put(theirs)
    await world.settle()
    await world.settle()
    assert world.condition("RouterReady")[1] == "Starting"
    world.restart(WHOLE)
    await world.settle()
    _, reason, message = world.condition("RouterReady")
    assert (reason, "NetworkPolicy yaie-engines" in message) == ("NameConflict", True)
    stored = world.cluster.objects[Ref("NetworkPolicy", "ns", names.ENGINES)]
    assert stored["spec"] == theirs["spec"]


async def test_an_operator_that_may_not_delete_says_so_and_tries_again_later(
    fake_world: World,
) -> None:
    fake_world.restart(WHOLE)
    await fake_world.settle()
    fake_world.restart(OperatorConfig())
    fake_world.cluster.refuse_deletes = "networkpolicies is forbidden"
    await fake_world.settle()
    await fake_world.settle()
    _, reason, message = fake_world.condition("RouterReady")
    assert (reason, "networkpolicies is forbidden" in message) == ("Refused", True)
    assert not [one for one in await fake_world.settle() if one[0] == "delete"]


RIGHT = 'User "operator" cannot patch resource "inferencemodels/status"'


async def hour(world: World, verb: str, *, step_s: float = 5.0) -> int:
    """Pass over every key and the namespace's again and again for an hour; the tries of a verb."""
    tries = 0
    for _ in range(int(3600 / step_s)):
        writes = await world.settle()
        world.cluster.writes.clear()
        await world.reconciler.reconcile("namespace/ns")
        tries += [one for one, _ in (*writes, *world.cluster.writes)].count(verb)
        world.now += timedelta(seconds=step_s)
    return tries


async def test_a_refused_status_is_tried_seldom_and_stored_when_the_refusal_ends(
    fake_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await fake_world.make_ready()
    events = len(fake_world.cluster.events)
    fake_world.cluster.refuse_verbs["status"] = RIGHT
    fake_world.cluster.set_status(DEPLOYMENT, {"observedGeneration": 1, "replicas": 1})
    tries = await hour(fake_world, "status")
    assert 5 <= tries <= 10
    told = [one for one in caplog.records if one.message.startswith("status refused")]
    assert len(told) == tries
    assert "roles again: the operator lacks this right" in str(told[0].__dict__)
    assert len(fake_world.cluster.events) == events, "of what is not stored, nothing is told"
    fake_world.cluster.refuse_verbs.clear()
    again_s = await fake_world.reconciler.reconcile("model/ns/demo")
    assert again_s is not None
    assert 0 < again_s <= 1800
    fake_world.now += timedelta(seconds=again_s)
    assert ("status", f"{names.KIND}/demo") in await fake_world.settle()
    assert len(fake_world.cluster.events) > events
    assert await fake_world.settle() == []


async def test_a_status_that_changes_all_the_time_has_no_more_refused_writes_in_an_hour(
    fake_world: World,
) -> None:
    fake_world.cluster.refuse_verbs["status"] = RIGHT
    await fake_world.settle()
    tries = 1
    for number in range(360):
        fake_world.cluster.set_status(DEPLOYMENT, {"replicas": number})
        fake_world.now += timedelta(seconds=10)
        tries += [verb for verb, _ in await fake_world.settle()].count("status")
    assert tries <= 10


async def test_a_changed_status_does_not_wait_for_a_refused_one(fake_world: World) -> None:
    fake_world.cluster.refuse_verbs["status"] = "status.replicas: Invalid value"
    await fake_world.settle()
    assert "status" not in [verb for verb, _ in await fake_world.settle()]
    fake_world.cluster.refuse_verbs.clear()
    await fake_world.make_ready()
    assert fake_world.condition("Ready")[0] == "True"


async def test_a_refusal_is_an_answer_and_every_flip_before_it_is_told_once() -> None:
    """A status gets no answer, the next ones are refused, and then one is stored."""
    cluster = SilentOnce()
    world = World(cluster)
    cluster.put(inference_model())
    await world.make_ready()
    told = len(cluster.events)
    cluster.set_status(DEPLOYMENT, {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1})
    cluster.breaks = True
    with pytest.raises(UnreachableError):
        await world.settle()
    cluster.refuse_verbs["status"] = RIGHT
    cluster.put(inference_model(suspend=True))
    await world.settle()
    assert len(cluster.events) == told
    cluster.refuse_verbs.clear()
    world.now += timedelta(seconds=11)
    await world.settle()
    assert {"Progressing", "Ready"} <= {message.partition("=")[0] for *_, message in
                                       cluster.events[told:]}  # fmt: skip
    told = len(cluster.events)
    world.now += timedelta(hours=1)
    assert not [one for one in await world.settle() if one[0] == "status"]
    assert len(cluster.events) == told


async def test_a_refused_delete_of_shared_objects_is_tried_seldom_and_done_in_the_end(
    fake_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await fake_world.make_ready()
    fake_world.cluster.remove(MODEL)
    fake_world.cluster.refuse_deletes = 'User "operator" cannot delete resource "deployments"'
    tries = await hour(fake_world, "delete")
    assert 5 <= tries <= 10
    told = [one for one in caplog.records if one.message.startswith("write refused")]
    assert len(told) == tries
    fake_world.cluster.refuse_deletes = ""
    again_s = await fake_world.reconciler.reconcile("namespace/ns")
    assert again_s is not None
    fake_world.now += timedelta(seconds=again_s)
    await fake_world.settle()
    assert ROUTER not in fake_world.cluster.objects


async def test_a_model_that_becomes_invalid_while_writes_wait_is_looked_at_no_more_often(
    fake_world: World,
) -> None:
    fake_world.cluster.refuse["Deployment"] = "exceeded quota: pods"
    await fake_world.settle()
    fake_world.cluster.put(inference_model(novelty=True))
    fake_world.now += timedelta(seconds=60)
    await fake_world.settle()
    recheck_s = OperatorConfig().recheck_s
    assert await fake_world.reconciler.reconcile("model/ns/demo") == recheck_s
