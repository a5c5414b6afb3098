"""Engines that wait to be ready: the router says which it reaches, and uses them in need."""

from typing import Any

from router.conftest import Stack
from router.fakes import FakeEngine, endpoint_slice
from yaie_router.discovery.endpoints import Directory


def waiting_slice(model: str, engine: FakeEngine, suffix: str, **told: bool) -> dict[str, Any]:
    item = endpoint_slice(model, engine, suffix=suffix)
    item["endpoints"][0]["conditions"] = {"ready": False, "serving": False, **told}
    return item


def reached(engine: str) -> str:
    return f'yaie_router_engine_reached{{engine="{engine}",model="demo"}}'


async def test_a_waiting_engine_is_told_as_reached_and_gets_no_request(stack: Stack) -> None:
    old, new = FakeEngine("old"), await FakeEngine("new").start()
    stack.engines.append(new)
    await stack.serve("demo", old)
    await stack.api.put(waiting_slice("demo", new, "new"))

    async def is_told() -> bool:
        return await stack.metric(reached("new")) == 1.0

    await stack.until(is_told)
    assert await stack.metric(reached("old")) == 1.0
    async with stack.chat() as response:
        assert response.headers["x-yaie-endpoint"] == "old"
    assert not [seen for seen in new.received if seen.path != "/readyz"]


async def test_an_engine_that_loads_or_ends_is_not_reached(stack: Stack) -> None:
    old = FakeEngine("old")
    loading, ending = FakeEngine("loading", ready="503 Loading"), FakeEngine("ending")
    await stack.serve("demo", old)
    for engine, told in ((loading, {}), (ending, {"terminating": True})):
        stack.engines.append(await engine.start())
        await stack.api.put(waiting_slice("demo", engine, engine.name, **told))

    async def was_asked() -> bool:
        return loading.probes > 1

    await stack.until(was_asked)
    assert await stack.metric(reached("loading")) == 0.0
    assert await stack.metric(reached("ending")) == 0.0
    assert ending.probes == 0


async def test_without_a_ready_engine_those_that_answer_are_used(stack: Stack) -> None:
    """Nobody opens the gates of new engines while the operator is down."""
    lost, new = FakeEngine("lost"), await FakeEngine("new").start()
    stack.engines.append(new)
    await stack.serve("demo", lost)
    await stack.api.put(waiting_slice("demo", new, "new"))
    await stack.api.delete("endpointslices", "demo-0")

    async def is_used() -> bool:
        is_gone = await stack.metric(reached("lost")) == 0.0
        return is_gone and await stack.metric('yaie_router_endpoints{model="demo"}') == 1.0

    await stack.until(is_used)
    async with stack.chat() as response:
        assert response.status == 200
        assert response.headers["x-yaie-endpoint"] == "new"


def test_ready_engines_are_used_alone() -> None:
    old, new = FakeEngine("old"), FakeEngine("new")
    old.port = new.port = 8000
    directory = Directory()
    directory.models.replace([{"metadata": {"name": "m"}, "spec": {}}])
    directory.slices.replace([endpoint_slice("m", old), waiting_slice("m", new, "new")])
    directory.reach(frozenset({"new"}))
    (model,) = directory.all()
    assert [one.name for one in model.endpoints] == ["old"]
    assert [one.name for one in model.reached] == ["new"]
    directory.slices.drop(endpoint_slice("m", old))
    (model,) = directory.all()
    assert [one.name for one in model.endpoints] == ["new"]
