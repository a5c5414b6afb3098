import asyncio
import socket
from pathlib import Path

import aiohttp
import pytest

from fakes.local_machine import machine_in
from yaie_local.kubelet.publish import Doorman, bind
from yaie_local.state import StateError


def test_a_port_in_use_is_told_with_the_way_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StateError, match=f"port {port} on 127.0.0.1 is in use; .*--port"):
            bind("default", "web", port)


def test_two_can_not_have_the_same_port() -> None:
    first = bind("default", "web", 0)
    with pytest.raises(StateError):
        bind("default", "web", first.port)
    first.socket.close()


async def test_without_a_router_clients_get_503_in_the_openai_envelope(tmp_path: Path) -> None:
    published = bind("default", "yaie-router", 0)
    async with machine_in(tmp_path, published=published), aiohttp.ClientSession() as session:
        for _ in range(3):
            async with session.post(f"{published.url}/v1/chat/completions", json={}) as response:
                assert response.status == 503
                assert response.headers["retry-after"] == "5"
                error = (await response.json())["error"]
                assert "yaie apply -f model.yaml" in error["message"]
    published.socket.close()


async def test_the_doorman_steps_aside_and_leaves_the_socket_listening() -> None:
    published = bind("default", "web", 0)
    doorman = Doorman(published)
    await doorman.stand(needed=True)
    await doorman.stand(needed=False)
    server = await asyncio.start_server(lambda _, w: w.close(), sock=published.socket.dup())
    reader, writer = await asyncio.open_connection("127.0.0.1", published.port)
    assert await reader.read() == b""
    writer.close()
    server.close()
    published.socket.close()


async def test_garbage_at_the_door_is_hung_up_on() -> None:
    published = bind("default", "web", 0)
    doorman = Doorman(published)
    await doorman.stand(needed=True)
    reader, writer = await asyncio.open_connection("127.0.0.1", published.port)
    writer.write(b"x" * 200_000)
    writer.write_eof()
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await reader.readexactly(1)
    writer.close()
    await doorman.stand(needed=False)
    published.socket.close()
