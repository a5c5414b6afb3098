import asyncio
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from yaie.server.web.protocol import DeadlineH11


class FakeTransport:
    def __init__(self) -> None:
        self.aborted = self.closed = False
        self.written = b""

    def get_extra_info(self, name: str) -> Any:
        return None

    def abort(self) -> None:
        self.aborted = True

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def write(self, data: bytes) -> None:
        self.written += data


async def app(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture
def connection() -> tuple[DeadlineH11, FakeTransport]:
    config = uvicorn.Config(app, log_config=None)
    config.load()
    protocol = DeadlineH11(config, ServerState(), {}, asyncio.new_event_loop())
    protocol.header_deadline_s = protocol.read_deadline_s = 0.05
    return protocol, FakeTransport()


async def connect(connection: tuple[DeadlineH11, FakeTransport]) -> FakeTransport:
    protocol, transport = connection
    protocol.loop.close()
    protocol.loop = asyncio.get_running_loop()
    protocol.connection_made(transport)
    return transport


async def test_a_client_that_does_not_read_is_cut_off(
    connection: tuple[DeadlineH11, FakeTransport],
) -> None:
    transport = await connect(connection)
    connection[0].pause_writing()
    await asyncio.sleep(0.1)
    assert transport.aborted


async def test_a_client_that_reads_again_in_time_stays(
    connection: tuple[DeadlineH11, FakeTransport],
) -> None:
    transport = await connect(connection)
    connection[0].pause_writing()
    connection[0].resume_writing()
    await asyncio.sleep(0.1)
    assert not transport.aborted


async def test_a_silent_client_is_closed(connection: tuple[DeadlineH11, FakeTransport]) -> None:
    transport = await connect(connection)
    await asyncio.sleep(0.1)
    assert transport.closed


async def test_a_complete_header_stops_the_clock(
    connection: tuple[DeadlineH11, FakeTransport],
) -> None:
    transport = await connect(connection)
    connection[0].data_received(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    await asyncio.sleep(0.1)
    assert transport.written.startswith(b"HTTP/1.1 200 OK")
    assert not transport.closed
    connection[0].data_received(b"GET / HT")
    await asyncio.sleep(0.1)
    assert transport.closed
    connection[0].connection_lost(None)
