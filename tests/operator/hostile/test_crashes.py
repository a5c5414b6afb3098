"""The operator ends before or after each of its writes: the next one comes to the same objects.

First in this process, for every write; then a real process is killed, for some of the writes or,
with YAIE_CRASHES=all, for every one.
"""

import asyncio
import itertools
import os
import signal
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import pytest

from cluster.gates.user import SHARED, User, gate, seconds_until, user_of
from cluster.operator_scene import (
    TIMEOUT_S,
    Operator,
    Scene,
    installed,
    kubeconfig,
    operator,
    scene,
)
from fakes.fake_cluster import FakeCluster, inference_model
from fakes.local_double import LocalDouble
from yaie_api import names
from yaie_operator.config import OperatorConfig
from yaie_operator.monitoring.metrics import Metrics
from yaie_operator.reconcile.observe import Ref, Store
from yaie_operator.reconcile.reconciler import Reconciler
from yaie_operator.watch import kinds

__all__ = ["installed", "kubeconfig", "scene"]
MODEL = Ref(names.KIND, "ns", "demo")
WRITES = ("apply", "replace", "delete", "patch_status", "set_scale", "emit")
Side = Literal["before", "after"]
Act = Callable[[Any], None]


class CrashError(BaseException):
    """The process is gone: no handler of the operator sees it."""


class Crashing:
    """A cluster at whose write of this number the operator ends; 0: at none."""

    def __init__(self, cluster: Any, number: int, side: Side) -> None:
        self._cluster = cluster
        self._left = number
        self._side = side

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._cluster, name)
        return self._counted(method) if name in WRITES else method

    def _counted(self, method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def write(*arguments: Any, **named: Any) -> Any:
            self._left -= 1
            if self._left == 0 and self._side == "before":
                raise CrashError
            answer = await method(*arguments, **named)
            if self._left == 0:
                raise CrashError
            return answer

        return write


async def run(cluster: Any, number: int = 0, side: Side = "before") -> bool:
    """A new operator works until it has nothing to write; whether it ended at that write."""
    store, woken = Store(), list[str]()
    reconciler = Reconciler(
        Crashing(cluster, number, side), store, OperatorConfig(),
        lambda: datetime(2026, 1, 1, tzinfo=UTC), metrics=Metrics(), wake=woken.append,
    )  # fmt: skip
    try:
        for _ in range(10):
            cluster.writes.clear()
            for kind in (*kinds.WATCHED, kinds.INFERENCE_MODEL):
                store.replace(kind, await cluster.list(kind), since=store.mark())
            for namespace in store.namespaces():
                await reconciler.reconcile(f"namespace/{namespace}")
            for model in store.models():
                await reconciler.reconcile(f"model/ns/{model['metadata']['name']}")
            if not cluster.writes:
                return False
    except CrashError:
        return True
    raise AssertionError(f"it goes on writing: {cluster.writes}")


def objects(cluster: Any) -> dict[Ref, Any]:
    """All objects, without what differs from run to run."""
    return {ref: _plain(obj) for ref, obj in cluster.objects.items() if ref.kind != "Event"}


RANDOM = {
    "uid", "resourceVersion", "creationTimestamp", "managedFields", "lastTransitionTime",
    "generation", "observedGeneration", "clusterIP", "clusterIPs",
    f"{names.GROUP}/applied",  # a hash, also of the owner's uid
}  # fmt: skip


def _plain(obj: Any) -> Any:
    if isinstance(obj, dict):
        if obj.get("kind") == "Secret":
            obj = {**obj, "data": sorted(obj["data"])}
        return {key: _plain(value) for key, value in obj.items() if key not in RANDOM}
    return [_plain(item) for item in obj] if isinstance(obj, list | tuple) else obj


def is_new(cluster: Any) -> None:
    cluster.put(inference_model())


def is_changed(cluster: Any) -> None:
    cluster.put(inference_model(resources={"cpu": "2"}, rollout={"maxSurge": 2}))


def is_scaled(cluster: Any) -> None:
    cluster.put(inference_model(replicas=3))


def is_rolled(cluster: Any) -> None:
    cluster.put(inference_model(engine={"maxModelLen": 512}))


def is_deleted(cluster: Any) -> None:
    cluster.remove(MODEL)


async def prepared(cluster: Any, act: Act) -> Any:
    """What the operator finds when it is to do its work."""
    if act is not is_new:
        is_new(cluster)
        await run(cluster)
        for name in ("demo", names.ROUTER):
            cluster.make_ready(Ref("Deployment", "ns", name))
        await run(cluster)
    act(cluster)
    return cluster


@pytest.fixture(params=["fake", pytest.param("local", marks=pytest.mark.drill)])
def new_cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Any]]:
    opened, numbers = list[LocalDouble](), itertools.count()

    def make() -> Any:
        if request.param == "fake":
            return FakeCluster()
        folder = tmp_path / str(next(numbers))
        folder.mkdir()
        opened.append(LocalDouble(folder))
        return opened[-1]

    yield make
    for double in opened:
        double.close()


@pytest.mark.parametrize("act", [is_new, is_changed, is_scaled, is_rolled, is_deleted])
@pytest.mark.parametrize("side", ["before", "after"])
async def test_a_crash_at_any_write_changes_nothing_about_the_result(
    act: Act, side: Side, new_cluster: Callable[[], Any]
) -> None:
    undisturbed = await prepared(new_cluster(), act)
    await run(undisturbed)
    crashes = 0
    for number in itertools.count(1):
        cluster = await prepared(new_cluster(), act)
        if not await run(cluster, number, side):
            break
        crashes += 1
        await run(cluster)
        assert objects(cluster) == objects(undisturbed), f"after a crash {side} write {number}"
        await run(cluster)
        assert cluster.writes == []
    assert crashes >= 2


@dataclass(frozen=True)
class Kill:
    """When the operator is killed: before or after its write of this number."""

    what: str
    number: int
    side: Side

    def __str__(self) -> str:
        return f"{self.what}-{self.side}-{self.number}"


SAMPLED = (Kill("create", 2, "before"), Kill("create", 4, "after"), Kill("delete", 2, "after"))
MOST_WRITES = 16
WRITES_OF: dict[str, int] = {}
"""How many writes there were, once it is known."""
QUIET_S = 3.0


async def _nothing(_user: User) -> None:
    """The model does not exist yet."""


async def _served(user: User) -> None:
    await user.create("demo", replicas=1)

    async def is_told() -> bool:
        status = (await user.get(kinds.INFERENCE_MODEL, "demo")).get("status", {})
        return bool(status.get("replicas", {}).get("updated") == 1)

    await seconds_until(is_told, "the model is not served")
    await asyncio.sleep(1.5)


ACTS: dict[str, tuple[Callable[[User], Awaitable[None]], Callable[[User], Awaitable[None]]]] = {
    "create": (_nothing, lambda user: user.create("demo", replicas=2)),
    "change": (_served, lambda user: user.edit("demo", rollout={"maxSurge": 2}, replicas=2)),
    "scale": (_served, lambda user: user.scale("demo", 2)),
    "roll": (_served, lambda user: user.edit("demo", engine={"maxModelLen": 512}, replicas=2)),
    "delete": (_served, lambda user: user.delete("demo")),
}


def kills() -> Sequence[Kill]:
    if os.environ.get("YAIE_CRASHES") != "all":
        return SAMPLED
    sides: tuple[Side, ...] = ("before", "after")
    return [Kill(what, n, side) for what in ACTS for n in range(1, MOST_WRITES) for side in sides]


@pytest.mark.cluster
@pytest.mark.drill
@pytest.mark.timeout(300)
# The connection of a killed client stays open in the gate until its thread ends.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("kill", kills(), ids=str)
async def test_a_killed_operators_work_is_finished_by_the_next(
    kill: Kill, scene: Scene, kubeconfig: Path, tmp_path: Path
) -> None:
    before, act = ACTS[kill.what]
    if kill.number > WRITES_OF.get(kill.what, MOST_WRITES):
        pytest.skip(f"{kill.what} has fewer than {kill.number} writes")
    with gate(scene, kubeconfig, tmp_path) as (proxy, through):
        killed = Operator(through, tmp_path, "killed", "--leader-elect", "false")
        try:
            killed.daemon.wait_until(lambda: killed.says("probes and metrics"), timeout_s=TIMEOUT_S)
            async with user_of(scene) as user:
                await before(user)
                proxy.arm(kill.number, kill.side)
                await act(user)
                if not await asyncio.to_thread(proxy.holds, QUIET_S):
                    WRITES_OF[kill.what] = kill.number - 1
                    pytest.skip(f"{kill.what} has fewer than {kill.number} writes")
            os.kill(killed.daemon.pid, signal.SIGKILL)
        finally:
            killed.daemon.stop()
        proxy.release()
    with operator(kubeconfig, tmp_path, "next"):
        async with user_of(scene) as user:
            await seconds_until(lambda: _is_as_wished(user, kill.what), f"{kill}, {proxy.what}")
        assert scene.writes(2.0) == []
        found = {child for child in scene.children() if not child.startswith("Pod/")}
        if kill.what == "delete":  # the garbage collector takes the model's own
            assert not found & OF_SPACE
        else:
            assert found >= OF_SPACE | {"Deployment/demo", "Service/demo"}
            assert found <= OF_SPACE | OWN, "an orphan"


OWN = {f"{child.kind.kind}/demo" for child in kinds.OF_MODEL}
OF_SPACE = {f"{kind.kind}/{name}" for kind, name in SHARED}


async def _is_as_wished(user: User, what: str) -> bool:
    shared = await user.shared()
    if what == "delete":
        return not any(shared)
    return all(shared) and await user.engines("demo") == 2
