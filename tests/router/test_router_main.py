"""The router as a process: flags, logs, the inherited socket, SIGTERM."""

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from ports import free_port
from router.conftest import GENEROUS_S, is_refused
from router.fakes import DONE, FakeApi, FakeEngine, endpoint_slice, event, inference_model


@pytest_asyncio.fixture
async def api(tmp_path: Path) -> AsyncIterator[FakeApi]:
    fake = FakeApi(tmp_path / "api.sock")
    await fake.start()
    yield fake
    await fake.stop()


async def start(
    api: FakeApi, port: int, *, env: dict[str, str] | None = None, **more: Any
) -> asyncio.subprocess.Process:
    """The router, ready to serve."""
    flags = ["--api-socket", str(api.socket), "--port", str(port), "--metrics-port", "0"]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "yaie_router",
        *flags,
        stderr=asyncio.subprocess.PIPE,
        env=os.environ | (env or {}),
        **more,
    )
    async with asyncio.timeout(GENEROUS_S), aiohttp.ClientSession() as client:
        while not await _is_ready(client, port):  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.05)
    return process


async def _is_ready(client: aiohttp.ClientSession, port: int) -> bool:
    try:
        async with client.get(f"http://127.0.0.1:{port}/readyz") as response:
            return response.status == 200
    except aiohttp.ClientConnectorError:
        return False


async def end(process: asyncio.subprocess.Process) -> list[dict[str, Any]]:
    """Its log lines, after it ended."""
    _, told = await asyncio.wait_for(process.communicate(), GENEROUS_S)
    assert process.returncode == 0, told.decode()
    return [json.loads(line) for line in told.splitlines()]


async def test_sigterm_finishes_streams_and_exits_zero(api: FakeApi) -> None:
    pieces = [event("a")] * 8 + [DONE]
    engine = await FakeEngine("pod-a", pieces=pieces, itl_s=0.1).start()
    await api.put(inference_model("demo"))
    await api.put(endpoint_slice("demo", engine))
    port = free_port()
    process = await start(api, port)
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client:
            headers = {"x-request-id": "my-request"}
            async with client.post(
                "/v1/chat/completions", json={"model": "demo"}, headers=headers
            ) as response:
                await response.content.readany()
                process.send_signal(signal.SIGTERM)
                assert (await response.read()).endswith(DONE)
        lines = await end(process)
    finally:
        await engine.stop()
    (request,) = [line for line in lines if line["message"] == "request"]
    assert request["request_id"] == "my-request"
    assert (request["model"], request["endpoint"], request["status"]) == ("demo", "pod-a", 200)
    assert lines[-1]["message"] == "stopped"


async def test_a_second_signal_ends_it_in_mid_stream(api: FakeApi) -> None:
    engine = await FakeEngine("pod-a", pieces=[event("a")] * 1000, itl_s=0.1).start()
    await api.put(inference_model("demo"))
    await api.put(endpoint_slice("demo", engine))
    port = free_port()
    process = await start(api, port)
    try:
        async with (
            aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client,
            client.post("/v1/chat/completions", json={"model": "demo"}) as response,
        ):
            await response.content.readany()
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(GENEROUS_S):
                while not await is_refused(port):  # noqa: ASYNC110 - another process
                    await asyncio.sleep(0.05)
            assert process.returncode is None
            process.send_signal(signal.SIGTERM)
            with pytest.raises(aiohttp.ClientPayloadError):
                await response.read()
        await end(process)
        await asyncio.wait_for(engine.left.wait(), GENEROUS_S)
    finally:
        await engine.stop()


async def test_it_also_accepts_on_an_inherited_socket(api: FakeApi) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        inherited = listener.fileno()
        published = listener.getsockname()[1]
        process = await start(
            api, free_port(), env={"YAIE_LISTEN_FD": str(inherited)}, pass_fds=(inherited,)
        )
    async with aiohttp.ClientSession() as client:
        assert await _is_ready(client, published)
    process.send_signal(signal.SIGTERM)
    await end(process)


async def test_a_port_in_use_ends_it_with_the_reason(api: FakeApi) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "yaie_router", "--api-socket", str(api.socket)),
            *("--port", str(taken.getsockname()[1])),
            *("--metrics-port", "0"),
            stderr=asyncio.subprocess.PIPE,
        )
        _, told = await asyncio.wait_for(process.communicate(), GENEROUS_S)
    assert process.returncode == 1
    assert "address already in use" in told.decode()
    assert "Traceback" not in told.decode()


async def test_help_shows_examples_quickly() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "yaie_router", "--help", stdout=asyncio.subprocess.PIPE
    )
    out, _ = await asyncio.wait_for(process.communicate(), GENEROUS_S)
    assert process.returncode == 0
    assert b"examples:" in out
    assert b"YAIE_PREFIX_KEY" in out
