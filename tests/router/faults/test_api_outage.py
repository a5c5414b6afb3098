"""API server and operator are away under load, and the router goes on with what it knows.

No operator runs here at all: nobody takes the address of a dead engine away. `YAIE_FAULT_S` is how
long the API server is away: 8 seconds by default; 600 make it the ten-minute version.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiohttp
import pytest

from ports import free_port
from router.fakes import FakeApi, FakeEngine, endpoint_slice
from router.faults.load import Load
from router.faults.matrix import Router, publish, router, scripted_engine
from router.faults.scripted_engine import TEXT, TOKENS

FAULT_S: Final = float(os.environ.get("YAIE_FAULT_S", "8"))
CLIENTS: Final = 32
PLAIN: Final = 8
"""Of the clients: those whose answers do not stream."""
MODEL: Final = "demo"
ENGINES: Final = 4
DEAD: Final = "pod-0"
NEW: Final = "pod-4"
THRESHOLD: Final = 3
"""Broken answers in a row that eject an engine."""
EJECTED_WITHIN_S: Final = 2.0
SEEN_WITHIN_S: Final = 5.0
"""The longest pause of a watch that finds nobody."""
GENEROUS_S: Final = 60.0
CONTINUED: Final = f'yaie_router_failovers_total{{model="{MODEL}",outcome="continued"}}'


@dataclass
class Cluster:
    """A router, its API server and four engines. `kill`: ends the first engine. `spare`: one that
    the router does not know.
    """

    api: FakeApi
    router: Router
    kill: Callable[[], None]
    spare: FakeEngine


@contextlib.asynccontextmanager
async def cluster(folder: Path) -> AsyncIterator[Cluster]:
    """Start all of it."""
    async with contextlib.AsyncExitStack() as stack:
        *ports, spare_port = [free_port() for _ in range(ENGINES + 1)]
        children = [await stack.enter_async_context(scripted_engine(port)) for port in ports]
        await stack.enter_async_context(scripted_engine(spare_port))
        spare = FakeEngine(NEW)
        spare.port = spare_port
        api = FakeApi(folder / "api.sock")
        await api.start()
        stack.push_async_callback(api.stop)
        running = await stack.enter_async_context(router(api))
        await publish(api, MODEL, ports, running)
        yield Cluster(api, running, children[0].kill, spare)


@contextlib.asynccontextmanager
async def loaded(running: Router) -> AsyncIterator[Load]:
    """Keep clients asking; at the end, wait until every answer has come."""
    load = Load(running.url, CLIENTS, MODEL, TOKENS, plain=PLAIN, says=TEXT)
    task = asyncio.create_task(load.run())
    try:
        yield load
        load.stop.set()
        await asyncio.wait_for(task, GENEROUS_S)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@contextlib.asynccontextmanager
async def away(api: FakeApi) -> AsyncIterator[None]:
    """Cut the watches and refuse connections."""
    await api.stop()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_unix_connection(str(api.socket))
    yield
    api.socket.unlink()
    await api.start()


async def metric(running: Router, name: str) -> float:
    """Return the sum of the samples whose lines begin so."""
    async with aiohttp.ClientSession() as session, session.get(running.metrics_url) as response:
        lines = (await response.text()).splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))


async def seconds_until_a_new_engine_serves(found: Cluster, load: Load) -> tuple[float, float]:
    """Name another engine as soon as the API server is back. Return how long it takes until the
    router knows it, and until it has answered somebody.
    """
    begun_s = time.monotonic()
    await found.api.put(endpoint_slice(MODEL, found.spare, suffix="new"))
    async with asyncio.timeout(GENEROUS_S):
        while await metric(found.router, "yaie_router_endpoints{") != ENGINES + 1:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        known_s = time.monotonic() - begun_s
        while not any(seen.engine == NEW and seen.ended_s for seen in load.seen):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return known_s, time.monotonic() - begun_s


def errors(load: Load, *, streams: bool) -> list[str]:
    return [seen.error for seen in load.seen if seen.error and seen.streams is streams]


def told(name: str, load: Load, known_s: float, served_s: float, more: dict[str, float]) -> None:
    """Print the figures of a run."""
    plain = [seen for seen in load.seen if not seen.streams]
    streams = [seen for seen in load.seen if seen.streams]
    figures = {
        "away s": FAULT_S,
        "streams": len(streams),
        "errors of streams": len(errors(load, streams=True)),
        "others": len(plain),
        "errors of others": len(errors(load, streams=False)),
        "longest wait s": round(max(seen.waited_s for seen in streams), 2),
        "a new engine is known after s": round(known_s, 2),
        "and has answered after s": round(served_s, 2),
    }
    print(f"\n{name}:", ", ".join(f"{key} {value:g}" for key, value in (figures | more).items()))


@pytest.mark.drill
async def test_the_router_goes_on_without_api_server_and_operator(tmp_path: Path) -> None:
    async with cluster(tmp_path) as found, loaded(found.router) as load:
        await asyncio.sleep(1.0)
        async with away(found.api):
            await asyncio.sleep(FAULT_S)
        known_s, served_s = await seconds_until_a_new_engine_serves(found, load)
    told("API server away", load, known_s, served_s, {})
    assert [seen.error for seen in load.seen if seen.error] == []
    assert {seen.engine for seen in load.seen} == {f"pod-{n}" for n in range(ENGINES + 1)}
    assert known_s <= SEEN_WITHIN_S


@pytest.mark.drill
async def test_an_engine_that_dies_meanwhile_is_left_alone(tmp_path: Path) -> None:
    async with cluster(tmp_path) as found, loaded(found.router) as load:
        await asyncio.sleep(1.0)
        async with away(found.api):
            await asyncio.sleep(FAULT_S / 4)
            found.kill()
            await asyncio.sleep(EJECTED_WITHIN_S)
            ejected_s = time.monotonic()
            ejections = await metric(found.router, "yaie_router_ejections_total")
            retries = await metric(found.router, "yaie_router_retries_total")
            await asyncio.sleep(max(FAULT_S * 3 / 4 - EJECTED_WITHIN_S, 1.0))
            later = await metric(found.router, "yaie_router_retries_total") - retries
        known_s, served_s = await seconds_until_a_new_engine_serves(found, load)
        continued = await metric(found.router, CONTINUED)
    more = {"retries": retries, "retries later": later, "went on elsewhere": continued}
    told("and one engine killed", load, known_s, served_s, more)
    assert errors(load, streams=True) == []
    assert len(errors(load, streams=False)) <= THRESHOLD, errors(load, streams=False)
    assert ejections >= 1.0
    assert later == 0.0, "the dead engine got requests after it was ejected"
    assert not [seen for seen in load.seen if seen.engine == DEAD and seen.begun_s > ejected_s]
    assert continued, "no stream had to go on elsewhere"
    assert known_s <= SEEN_WITHIN_S
