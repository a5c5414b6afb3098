"""Each write of the operator is held until a user has edited the model: the last edit counts.

Full lists are an hour apart here, so what is acted on is what a watch has told.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from cluster.gates.proxy import GateProxy
from cluster.gates.user import SHARED, User, gate, seconds_until, user_of
from cluster.operator_scene import Scene, installed, kubeconfig, operator, scene
from yaie_operator.watch import kinds

__all__ = ["installed", "kubeconfig", "scene"]
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.drill,
    pytest.mark.timeout(600),
    # A connection that the gate held when its test ended is closed with the gate's thread.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
REACTION_S = 2.0
SHARED_S = 1.0
"""A namespace's changes are collected for so long before what it shares is written."""
QUIET_S = 3.0
"""Without another write within this time, there is none."""
FEWEST = 2
Step = Callable[[User, str], Awaitable[None]]


@dataclass(frozen=True)
class Scenario:
    """What happens before the operator's writes are counted, and what causes them."""

    before: Step
    act: Step


async def nothing(_user: User, _name: str) -> None:
    """The model does not exist yet."""


async def is_served(user: User, name: str) -> None:
    await user.create(name, replicas=1)

    async def is_told() -> bool:
        status = (await user.get(kinds.INFERENCE_MODEL, name)).get("status", {})
        return bool(status.get("replicas", {}).get("updated") == 1)

    await seconds_until(is_told, f"{name} is not served")
    await asyncio.sleep(0.5)  # its last status is written


async def is_created(user: User, name: str) -> None:
    await user.create(name, replicas=1)


async def is_changed(user: User, name: str) -> None:
    await user.edit(name, resources={"cpu": "100m"}, replicas=7)


async def is_scaled(user: User, name: str) -> None:
    await user.scale(name, 7)


SCENARIOS = {
    "create": Scenario(nothing, is_created),
    "change": Scenario(is_served, is_changed),
    "scale": Scenario(is_served, is_scaled),
}


async def held(proxy: GateProxy, number: int, what: Awaitable[None]) -> bool:
    """Do something; whether the operator's write of this number, from then on, is held now."""
    proxy.arm(number)
    await what
    return await asyncio.to_thread(proxy.holds, QUIET_S)


@pytest.mark.parametrize("what", SCENARIOS)
async def test_an_edit_during_any_write_is_acted_on_in_time(
    what: str, scene: Scene, kubeconfig: Path, tmp_path: Path
) -> None:
    scenario, late = SCENARIOS[what], dict[str, float]()
    with gate(scene, kubeconfig, tmp_path) as (proxy, through), operator(through, tmp_path):
        async with user_of(scene) as user:
            for number in itertools.count(1):
                name, replicas = f"m{number}", number + 1
                await scenario.before(user, name)
                if not await held(proxy, number, scenario.act(user, name)):
                    break
                edit = (
                    user.scale(name, replicas) if number % 2 else user.edit(name, replicas=replicas)
                )
                await edit
                proxy.release()
                late[f"{number}: {proxy.what}"] = await seconds_until(
                    lambda n=name, r=replicas: _asks(user, n, r), f"{proxy.what}, {name}"
                )
    assert len(late) >= FEWEST
    assert max(late.values()) < REACTION_S, late


async def _asks(user: User, name: str, replicas: int) -> bool:
    return await user.engines(name) == replicas


async def test_a_model_that_comes_while_the_last_ones_router_is_deleted_has_one(
    scene: Scene, kubeconfig: Path, tmp_path: Path
) -> None:
    late: dict[str, float] = {}
    with gate(scene, kubeconfig, tmp_path) as (proxy, through), operator(through, tmp_path):
        async with user_of(scene) as user:
            await is_served(user, "m0")
            for number in itertools.count(1):
                old, new = f"m{number - 1}", f"m{number}"
                await seconds_until(lambda: _has_router(user), "the router")
                if not await held(proxy, number, user.delete(old)):
                    break
                await user.create(new, replicas=2)
                proxy.release()

                async def is_back(name: str = new) -> bool:
                    return await user.engines(name) == 2 and await _has_router(user)

                late[f"{number}: {proxy.what}"] = await seconds_until(is_back, proxy.what)
    assert len(late) >= len(SHARED)
    assert max(late.values()) < REACTION_S + SHARED_S, late


async def _has_router(user: User) -> bool:
    found = await user.shared()
    return all(obj and "deletionTimestamp" not in obj["metadata"] for obj in found)
