"""A running router with a fake API, and engines that end with the test."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest_asyncio

from ports import free_port
from router.fakes import FakeApi, FakeEngine, endpoint_slice, inference_model
from yaie_router.config import Config
from yaie_router.run import Signals, run

GENEROUS_S = 60.0
"""How long a test waits for what should come at once: a busy machine fails no test."""


async def is_refused(port: int) -> bool:
    """Nobody accepts connections there."""
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except ConnectionRefusedError:
        return True
    writer.close()
    return False


@dataclass
class Stack:
    """Router + API + client session; engines are added as the test needs them."""

    api: FakeApi
    config: Config
    signals: Signals
    task: asyncio.Task[None]
    client: aiohttp.ClientSession
    engines: list[FakeEngine]

    @property
    def url(self) -> str:
        scheme = "https" if self.config.ssl_certfile else "http"
        return f"{scheme}://127.0.0.1:{self.config.port}"

    @property
    def metrics_url(self) -> str:
        return f"http://127.0.0.1:{self.config.metrics_port}/metrics"

    async def serve(self, model: str, /, *engines: FakeEngine, **spec: Any) -> None:
        """Store the model and its engines, and wait until the router knows them."""
        await self.api.put(inference_model(model, **spec))
        for index, engine in enumerate(engines):
            await engine.start()
            self.engines.append(engine)
            await self.api.put(endpoint_slice(model, engine, suffix=str(index)))
        served = spec.get("model", {}).get("servedName", model)
        await self.until(lambda: self.knows(model, served, len(engines)))

    async def knows(self, model: str, served: str, endpoints: int) -> bool:
        async with self.client.get("/v1/models") as response:
            names = {entry["id"] for entry in (await response.json())["data"]}
        return served in names and await self.metric(
            f'yaie_router_endpoints{{model="{model}"}}'
        ) == float(endpoints)

    async def metric(self, sample: str) -> float:
        """A sample's value, 0 when it is absent."""
        async with self.client.get(self.metrics_url) as response:
            for line in (await response.text()).splitlines():
                if line.startswith(sample + " "):
                    return float(line.rsplit(" ", 1)[1])
        return 0.0

    async def until(
        self, check: Callable[[], Awaitable[bool]], within_s: float = GENEROUS_S
    ) -> None:
        async with asyncio.timeout(within_s):
            while not await check():  # noqa: ASYNC110 - asks the router over HTTP
                await asyncio.sleep(0.01)

    def chat(self, text: str = "hi", model: str = "demo", **more: Any) -> Any:
        """POST a streaming chat; use as `async with`."""
        body = {"model": model, "stream": True, "messages": [{"role": "user", "content": text}]}
        return self.client.post("/v1/chat/completions", json=body | more)


StackMaker = Callable[..., Awaitable[Stack]]


@pytest_asyncio.fixture
async def start_router(tmp_path: Path) -> AsyncIterator[StackMaker]:
    """A function that starts a router; its keywords change settings. `trust`: of its client."""
    stacks: list[Stack] = []

    async def start(*, trust: ssl.SSLContext | bool = True, **settings: Any) -> Stack:
        api = FakeApi(tmp_path / f"api-{len(stacks)}.sock")
        await api.start()
        config = replace(
            Config(
                port=free_port(),
                metrics_port=free_port(),
                api_socket=api.socket,
                drain_timeout_s=1.0,
            ),
            **settings,
        )
        signals = Signals()
        task = asyncio.create_task(run(config, signals))
        scheme = "https" if config.ssl_certfile else "http"
        client = aiohttp.ClientSession(
            f"{scheme}://127.0.0.1:{config.port}", connector=aiohttp.TCPConnector(ssl=trust)
        )
        stack = Stack(api, config, signals, task, client, [])
        stacks.append(stack)
        await stack.until(lambda: _answers(stack))
        return stack

    yield start
    for stack in stacks:
        await stack.client.close()
        stack.signals.raised()
        stack.signals.raised()
        await asyncio.wait_for(stack.task, GENEROUS_S)
        for engine in stack.engines:
            await engine.stop()
        await stack.api.stop()


async def _answers(stack: Stack) -> bool:
    if stack.task.done():
        stack.task.result()
    try:
        async with stack.client.get("/livez") as response:
            return response.status == 200
    except aiohttp.ClientConnectorError:
        return False


@pytest_asyncio.fixture
async def stack(start_router: StackMaker) -> Stack:
    """A router with default settings that has listed an empty namespace."""
    started = await start_router()

    async def is_ready() -> bool:
        async with started.client.get("/readyz") as response:
            return response.status == 200

    await started.until(is_ready)
    return started
