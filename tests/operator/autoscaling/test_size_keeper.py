from collections.abc import Iterable, Mapping
from typing import Any

from fakes.fake_cluster import inference_model
from yaie_api import names
from yaie_operator.autoscaling.exposition import EngineFigures
from yaie_operator.autoscaling.scrape import Place
from yaie_operator.autoscaling.size_keeper import RETRY_S, SizeKeeper
from yaie_operator.reconcile.observe import Store
from yaie_operator.reconcile.sizes import Sizes

SIZES = Sizes(parameters=10, weight_bytes=20, context_tokens=100, kv_tokens=450)


class Pages:
    """Engines that all say the same, and who was asked."""

    def __init__(self, sizes: Sizes | None) -> None:
        self.sizes = sizes
        self.asked: list[str] = []

    async def engines(self, pods: Iterable[Place]) -> Mapping[str, EngineFigures | None]:
        found = list(pods)
        self.asked += [f"{place.namespace}/{place.pod}" for place in found]
        said = None if self.sizes is None else EngineFigures(sizes=self.sizes)
        return {place.pod: said for place in found}


class World:
    def __init__(self, sizes: Sizes | None = SIZES) -> None:
        self.now_s = 0.0
        self.woken: list[str] = []
        self.store = Store()
        self.pages = Pages(sizes)
        self.keeper = SizeKeeper(self.store, wake=self.woken.append, monotonic=lambda: self.now_s)
        self.version = 0

    def put(self, obj: dict[str, Any]) -> None:
        self.version += 1
        obj["metadata"] |= {"resourceVersion": str(self.version)}
        self.store.put(obj)

    def model(self, namespace: str = "ns", uid: str = "u") -> dict[str, Any]:
        made = inference_model()
        made["metadata"] |= {"namespace": namespace, "uid": uid}
        self.put(made)
        return made

    def pod(
        self,
        name: str = "demo-1",
        *,
        template: str = "t1",
        namespace: str = "ns",
        ready: bool = True,
    ) -> None:
        labels = {names.LABEL_MODEL: "demo", names.LABEL_TEMPLATE_HASH: template}
        metadata = {"name": name, "namespace": namespace, "uid": name, "labels": labels}
        metadata |= {"creationTimestamp": name}
        conditions = [{"type": "Ready", "status": str(ready)}]
        status = {"podIP": "10.0.0.1", "conditions": conditions}
        self.put({"kind": "Pod", "metadata": metadata, "status": status, "spec": {}})

    async def looks(self, times: int = 1) -> list[str]:
        self.pages.asked.clear()
        for _ in range(times):
            await self.keeper.look(self.pages)
        return self.pages.asked


async def test_a_ready_engine_is_asked_once_and_its_model_is_woken() -> None:
    world = World()
    world.model()
    world.pod()
    assert await world.looks(5) == ["ns/demo-1"]
    assert world.woken == ["model/ns/demo"]
    assert world.keeper.sizes("ns", "demo") == SIZES


async def test_only_ready_engines_are_asked() -> None:
    world = World()
    world.model()
    assert await world.looks() == []
    world.pod(ready=False)
    assert await world.looks() == []
    assert world.keeper.sizes("ns", "demo") is None


async def test_a_further_engine_of_the_same_version_is_not_asked() -> None:
    world = World()
    world.model()
    world.pod()
    await world.looks()
    world.pod("demo-2")
    assert await world.looks() == []


async def test_an_engine_of_a_new_version_and_of_a_new_model_is_asked() -> None:
    world = World()
    first = world.model()
    world.pod()
    await world.looks()
    world.pod("demo-2", template="t2")
    assert await world.looks(2) == ["ns/demo-2"]
    world.store.remove(first)
    await world.looks()
    assert world.keeper.sizes("ns", "demo") is None
    world.model(uid="v")
    assert await world.looks(2) == ["ns/demo-2"]


async def test_an_engine_that_does_not_say_its_sizes_is_asked_again_later() -> None:
    world = World(sizes=None)
    world.model()
    world.pod()
    assert await world.looks(3) == ["ns/demo-1"]
    world.now_s = RETRY_S
    world.pages.sizes = SIZES
    assert await world.looks(3) == ["ns/demo-1"]
    assert world.keeper.sizes("ns", "demo") == SIZES


async def test_an_engine_of_another_make_says_nothing_and_wakes_nobody() -> None:
    world = World(sizes=Sizes())
    world.model()
    world.pod()
    await world.looks()
    assert world.woken == []
    assert world.keeper.sizes("ns", "demo") is None


async def test_pods_of_one_name_in_two_namespaces_are_kept_apart() -> None:
    world = World()
    for namespace in ("a", "b"):
        world.model(namespace, uid=namespace)
        world.pod(namespace=namespace)
    assert sorted(await world.looks()) == ["a/demo-1", "b/demo-1"]
    assert sorted(world.woken) == ["model/a/demo", "model/b/demo"]
