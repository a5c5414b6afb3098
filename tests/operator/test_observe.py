from collections.abc import Mapping
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from fakes.fake_cluster import FakeCluster, inference_model
from yaie_api import names
from yaie_operator.reconcile.observe import Ref, Store, keys_of, observe_model, observe_shared
from yaie_operator.watch import kinds


def obj(
    name: str = "demo", version: int = 1, uid: str = "u", kind: str = names.KIND, **labels: str
) -> dict[str, Any]:
    metadata = {
        "name": name, "namespace": "ns", "uid": uid, "resourceVersion": str(version),
        "labels": {key.replace("_", "/"): value for key, value in labels.items()},
    }  # fmt: skip
    return {"kind": kind, "metadata": metadata}


REF = Ref(names.KIND, "ns", "demo")


def test_only_newer_states_are_news() -> None:
    store = Store()
    assert store.put(obj(version=5))
    assert not store.put(obj(version=5))
    assert not store.put(obj(version=4))
    assert store.put(obj(version=10))
    assert store.get(REF) == obj(version=10)


def test_slices_are_found_by_their_service() -> None:
    store = Store()
    store.put(obj("other-1", kind="EndpointSlice"))
    one = obj("demo-2", 2, kind="EndpointSlice")
    one["metadata"]["labels"] = {names.LABEL_SERVICE_NAME: "demo", names.LABEL_MODEL: "demo"}
    store.put(one)
    assert [found["metadata"]["name"] for found in store.slices("ns", "demo")] == ["demo-2"]
    assert list(keys_of(one, store.models)) == ["model/ns/demo"]


def test_an_old_deletion_does_not_remove_a_new_object_of_the_same_name() -> None:
    store = Store()
    store.put(obj(version=5, uid="new"))
    assert not store.remove(obj(version=3, uid="old"))
    assert store.remove(obj(version=6, uid="new"))
    assert not store.remove(obj(version=6, uid="new"))
    assert store.get(REF) is None


def test_a_full_list_removes_what_it_lacks_whose_deletion_no_event_told() -> None:
    store = Store()
    store.put(obj())
    store.put(obj("demo", kind="Service"))
    store.replace(kinds.INFERENCE_MODEL, [obj("other", 7)], since=store.mark())
    assert store.get(REF) is None
    assert store.get(Ref(names.KIND, "ns", "other")) is not None
    assert store.get(Ref("Service", "ns", "demo")) is not None


def test_what_came_after_the_list_was_requested_is_kept() -> None:
    store = Store()
    store.put(obj("changed", 1))
    since = store.mark()
    store.put(obj("new", 9))
    store.put(obj("changed", 8))
    store.replace(kinds.INFERENCE_MODEL, [obj("changed", 2)], since=since)
    assert store.get(Ref(names.KIND, "ns", "new")) is not None
    assert store.get(Ref(names.KIND, "ns", "changed")) == obj("changed", 8)


def test_an_answer_that_comes_after_the_deletion_does_not_bring_the_object_back() -> None:
    store = Store()
    store.put(obj(version=5))
    since = store.mark()
    store.remove(obj(version=7))
    assert not store.put(obj(version=6))
    store.replace(kinds.INFERENCE_MODEL, [obj(version=5)], since=since)
    assert store.get(REF) is None
    assert store.put(obj(version=8, uid="successor"))


def test_a_full_list_is_believed_even_when_its_versions_went_back() -> None:
    store = Store()
    store.put(obj(version=500))
    store.replace(kinds.INFERENCE_MODEL, [obj(version=20)], since=store.mark())
    assert store.get(REF) == obj(version=20)
    assert store.put(obj(version=21))


def test_pods_are_found_by_model_and_the_routers_by_none() -> None:
    store = Store()
    store.put(obj("a", kind="Pod", yaie_dev="x", **{"yaie.dev_model": "demo"}))
    store.put(obj("b", kind="Pod", **{"yaie.dev_model": "other"}))
    store.put(obj("r", kind="Pod"))
    assert [p["metadata"]["name"] for p in store.pods("ns", "demo")] == ["a"]
    assert [p["metadata"]["name"] for p in store.pods("ns", "")] == ["r"]
    assert store.pods("elsewhere", "demo") == []


def test_models_on_their_way_out_are_not_counted() -> None:
    store = Store()
    leaving = obj("leaving")
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    store.put(leaving)
    store.put(obj("staying"))
    assert [m["metadata"]["name"] for m in store.models("ns")] == ["staying"]
    assert store.models("elsewhere") == []


def test_managed_fields_are_not_kept() -> None:
    store, big = Store(), obj()
    big["metadata"]["managedFields"] = [{"manager": "x"}]
    store.put(big)
    stored = store.get(REF)
    assert stored is not None
    assert "managedFields" not in stored["metadata"]
    assert "managedFields" in big["metadata"]


def test_a_change_wakes_what_it_concerns() -> None:
    def models(_: str) -> list[dict[str, Any]]:
        return [obj("a"), obj("b")]

    assert list(keys_of(obj(), models)) == ["model/ns/demo", "namespace/ns"]
    child = obj("demo", kind="Deployment", **{"yaie.dev_model": "demo"})
    assert list(keys_of(child, models)) == ["model/ns/demo"]
    router = obj(names.ROUTER, kind="Deployment")
    assert list(keys_of(router, models)) == ["namespace/ns", "model/ns/a", "model/ns/b"]


def test_a_child_whose_label_somebody_edits_wakes_its_model() -> None:
    labels = {names.LABEL_MODEL.replace("/", "_"): "other"}
    child = obj("demo", kind="Service", **labels)
    assert list(keys_of(child, lambda _: [])) == ["model/ns/other", "model/ns/demo"]


async def test_a_child_that_the_store_lacks_is_looked_up_live_once_a_write_has_met_it() -> None:
    cluster, store = FakeCluster(), Store()
    store.put(cluster.put(inference_model()))
    foreign = cluster.put(obj("demo", kind="Service"))
    service = Ref("Service", "ns", "demo")

    async def seen() -> Mapping[Ref, Any]:
        view = await observe_model(store, cluster, "ns", "demo")
        assert view is not None
        return view.objects

    assert await seen() == {}
    store.forget(service)
    assert await seen() == await seen() == {service: foreign}
    cluster.remove(service)
    assert await seen() == {}
    assert not store.is_uncertain(service)
    assert await observe_model(store, cluster, "ns", "none") is None


async def test_what_a_namespace_without_a_model_shared_is_looked_up_live() -> None:
    """Without its label an object is in no watch, and would stay for ever."""
    cluster, store = FakeCluster(), Store()
    router = cluster.put(obj(names.ROUTER, kind="Deployment"))
    view = await observe_shared(store, cluster, "ns")
    assert view.objects == {Ref("Deployment", "ns", names.ROUTER): router}


class StoreMachine(RuleBasedStateMachine):
    """Whatever is lost or late, a list that was requested after everything is what is known."""

    def __init__(self) -> None:
        super().__init__()
        self.store = Store()
        self.cluster: dict[Ref, dict[str, Any]] = {}
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.version = 0

    @rule(name=st.sampled_from("abc"))
    def write(self, name: str) -> None:
        self.version += 1
        live = self.cluster.get(Ref(names.KIND, "ns", name))
        uid = live["metadata"]["uid"] if live else f"u{self.version}"
        changed = obj(name, self.version, uid)
        self.cluster[Ref.of(changed)] = changed
        self.events.append(("MODIFIED", changed))

    @rule(name=st.sampled_from("abc"))
    def delete(self, name: str) -> None:
        if gone := self.cluster.pop(Ref(names.KIND, "ns", name), None):
            self.version += 1
            self.events.append(("DELETED", obj(name, self.version, gone["metadata"]["uid"])))

    @rule(data=st.data(), lost=st.booleans())
    def deliver(self, data: st.DataObject, *, lost: bool) -> None:
        if not self.events:
            return
        kind, changed = self.events.pop(data.draw(st.integers(0, len(self.events) - 1)))
        if not lost:
            (self.store.remove if kind == "DELETED" else self.store.put)(changed)

    @rule()
    def list(self) -> None:
        self.events.clear()
        since = self.store.mark()
        self.store.replace(kinds.INFERENCE_MODEL, self.cluster.values(), since=since)
        assert {Ref.of(o): o for o in self.store.models()} == self.cluster

    @invariant()
    def its_indexes_agree(self) -> None:
        by_name = {r for n in "abc" if self.store.get(r := Ref(names.KIND, "ns", n)) is not None}
        assert {Ref.of(o) for o in self.store.models("ns")} == by_name


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)


def test_a_models_namesakes_are_those_that_serve_one_of_its_names_now() -> None:
    store = Store()

    def put(name: str, version: int, *, space: str = "ns", **model: Any) -> dict[str, Any]:
        made = inference_model(name)
        made["metadata"] |= {"uid": name, "namespace": space, "resourceVersion": str(version)}
        made["spec"]["model"] |= model
        store.put(made)
        return made

    mine = put("mine", 1, aliases=["chat"])
    put("chat", 2)
    put("other", 3, servedName="mine")
    put("elsewhere", 4, space="far", servedName="mine")
    assert {obj["metadata"]["name"] for obj in store.namesakes(mine)} == {"chat", "other"}
    put("other", 5, servedName="renamed")
    chat = put("chat", 6)
    assert [obj["metadata"]["name"] for obj in store.namesakes(mine)] == ["chat"]
    store.remove(chat)
    assert store.namesakes(mine) == []
