"""A thousand streams at a time, where a shell's usual limit of open files is 1,024."""

import asyncio
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from ports import free_port
from router.conftest import GENEROUS_S
from router.fakes import DONE, FakeApi, FakeEngine, endpoint_slice, event, inference_model
from yaie_router.run import raise_descriptor_limit

STREAMS = 1000


@pytest.fixture
def many_files() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    raise_descriptor_limit()
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.drill
@pytest.mark.usefixtures("many_files")
async def test_a_soft_limit_of_1024_open_files_does_not_bound_streams(tmp_path: Path) -> None:
    api = FakeApi(tmp_path / "api.sock")
    await api.start()
    engine = await FakeEngine(pieces=[event("a"), event("b"), DONE], hold_at=1).start()
    await api.put(inference_model())
    await api.put(endpoint_slice("demo", engine))
    port, metrics = free_port(), free_port()
    words = ["--api-socket", str(api.socket), "--port", str(port), "--metrics-port", str(metrics)]
    command = [sys.executable, "-m", "yaie_router", *words]
    router = await asyncio.create_subprocess_exec(
        *("sh", "-c", 'ulimit -S -n 1024; exec "$@"', "sh", *command, "--log-level", "warning")
    )
    try:
        async with aiohttp.ClientSession(
            f"http://127.0.0.1:{port}", connector=aiohttp.TCPConnector(limit=0)
        ) as client:
            await until_ready(client)
            streams = [asyncio.create_task(one(client, engine)) for _ in range(STREAMS)]
            answers = await asyncio.wait_for(asyncio.gather(*streams), GENEROUS_S)
    finally:
        router.terminate()
        await asyncio.wait_for(router.wait(), GENEROUS_S)
        await engine.stop()
        await api.stop()
    assert set(answers) == {event("a") + event("b") + DONE}


async def until_ready(client: aiohttp.ClientSession) -> None:
    async with asyncio.timeout(GENEROUS_S):
        while True:
            try:
                async with client.get("/readyz") as response:
                    if response.status == 200:
                        return
            except aiohttp.ClientConnectionError:
                pass
            await asyncio.sleep(0.1)


async def one(client: aiohttp.ClientSession, engine: FakeEngine) -> bytes:
    """Read a stream whose end comes when all have begun."""
    body = {"model": "demo", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
    async with client.post("/v1/chat/completions", json=body) as response:
        first = await response.content.readexactly(len(event("a")))
        begun = engine.__dict__.setdefault("begun", [])
        begun.append(first)
        if len(begun) == STREAMS:
            engine.resume.set()
        return first + await response.read()
