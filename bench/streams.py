"""An engine double that streams, the API double that names it, and a load of streams: for `relay`.

Each event carries the monotonic time of its sending, so its age at arrival is what lies between.

    python bench/streams.py PORT     the engine double, in its own process
"""

import asyncio
import json
import re
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import uvloop
from aiohttp import web

from yaie_api.http.replay import CAN_REPLAY, note
from yaie_api.names import HEADER_REPLAY

INTERVAL_S = 0.2
RAMP_S = 0.001
"""Between the beginnings of two streams."""
STAMP = re.compile(rb'"t":(\d{20})')
PAD = b"x" * 120
BODY = (
    b'{"model":"demo","stream":true,"messages":[{"role":"user","content":"hello"}],"n_events":%d}'
)


def event() -> bytes:
    return b'data: {"t":%020d,"pad":"%s"}\n\n' % (time.monotonic_ns(), PAD)


def framed(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n"
NOTED = f"{HEADER_REPLAY}: {CAN_REPLAY}\r\n".encode()
NOTE = note([12_345])
END = framed(b"data: [DONE]\n\n") + b"0\r\n\r\n"


# The engine double (its own process)


async def stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """20 events at once, or one each interval for as long as the request says. A router that asks
    for notes gets them, as from the real server.
    """
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"(?i)content-length: *(\d+)", head)
            body = await reader.readexactly(int(length[1]) if length else 0)
            asked = json.loads(body)
            count = int(asked["n_events"])
            await asyncio.sleep(asked.get("after_s", 0))
            is_noted = HEADER_REPLAY.encode() in head
            told = NOTE if is_noted else b""
            writer.write(HEAD + (NOTED if is_noted else b"") + b"\r\n")
            for _ in range(count or 20):
                writer.write(framed(event() + told))
                await asyncio.sleep(INTERVAL_S if count else 0)
            writer.write(END)
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def engine(port: int) -> None:
    server = await asyncio.start_server(stream, "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


# The API double (in the load generator's process; idle while measuring)


@asynccontextmanager
async def api(path: Path, engine_port: int) -> AsyncIterator[None]:
    items = {
        "inferencemodels": {"metadata": {"name": "demo"}, "spec": {}},
        "endpointslices": {
            "metadata": {"name": "demo-0", "labels": {"yaie.dev/model": "demo"}},
            "ports": [{"name": "http", "port": engine_port}],
            "endpoints": [{"addresses": ["127.0.0.1"], "targetRef": {"name": "engine"}}],
        },
    }

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.query.get("watch"):
            response = web.StreamResponse()
            await response.prepare(request)
            await asyncio.sleep(3600)
        item = items[request.match_info["plural"]]
        return web.json_response({"items": [item], "metadata": {"resourceVersion": "1"}})

    app = web.Application()
    app.router.add_get("/apis/{group}/{version}/namespaces/{namespace}/{plural}", answer)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.UnixSite(runner, str(path)).start()
    yield
    await runner.cleanup()


# The load generator


class Client(asyncio.Protocol):
    """One connection that sends one request and notes the age of each event at arrival."""

    def __init__(self, body: bytes, ages_ns: list[int]) -> None:
        self.request = (
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"
            b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
        )
        self.ages_ns = ages_ns
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.tail = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.send()

    def send(self) -> None:
        self.transport.write(self.request)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        now_ns = time.monotonic_ns()
        data = self.tail + data
        self.ages_ns += [now_ns - int(stamp) for stamp in STAMP.findall(data)]
        if data.endswith(b"0\r\n\r\n"):
            self.tail = b""
            self.finish()
        else:  # keep what may be the start of a stamp or of the end
            last = data.rfind(b'"t":')
            self.tail = data[last:] if last > len(data) - 24 else data[-5:] if last < 0 else b""

    def finish(self) -> None:
        if not self.done.done():
            self.done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(exc or ConnectionError("closed before the end"))


@dataclass
class Window:
    """A stretch of time in which all streams run: events, their ages, and what a process took."""

    ages_ns: list[int]
    events: int
    cpu_s: float


async def steady(
    port: int, streams: int, seconds: float, spent_s: Callable[[], float], body: bytes = BODY
) -> Window:
    """Open `streams` streams of 5 events a second, one after the other; watch them for `seconds`.

    `spent_s`: CPU time until now of the process that is measured.
    """
    loop = asyncio.get_running_loop()
    ramp_s = max(INTERVAL_S, streams * RAMP_S)
    count = int((ramp_s + seconds) / INTERVAL_S) + 2
    ages: list[int] = []
    clients = []
    for _ in range(streams):
        _, client = await loop.create_connection(
            lambda: Client(body % count, ages), "127.0.0.1", port
        )
        clients.append(client)
        await asyncio.sleep(ramp_s / streams)
    while len(ages) < streams:  # noqa: ASYNC110 - the engine's process tells nobody
        await asyncio.sleep(INTERVAL_S)
    begun, before_s = len(ages), spent_s()
    await asyncio.sleep(seconds - INTERVAL_S)
    window = Window(ages[begun:], len(ages) - begun, spent_s() - before_s)
    for client in clients:
        client.done.cancel()
        client.transport.close()
    await asyncio.sleep(INTERVAL_S)
    return window


async def burst(port: int, clients: int, requests: int) -> float:
    """Requests of 20 events each, one after another on each of `clients` connections: seconds."""
    loop = asyncio.get_running_loop()
    started = time.monotonic()

    async def one() -> None:
        _, client = await loop.create_connection(lambda: Client(BODY % 0, []), "127.0.0.1", port)
        for _ in range(requests // clients):
            await client.done
            client.done = loop.create_future()
            client.send()
        await client.done
        client.transport.close()

    await asyncio.gather(*(one() for _ in range(clients)))
    return time.monotonic() - started


UNITS = (b"[],", b"{},", b"[[[]]],", b'{"a":1},', b'"",', b"1,", b"1.5,", b'"\\ud83d",')
BODY_BYTES = 8_000_000


def hostile_bodies() -> Iterator[bytes]:
    """Bodies of nearly 8 MiB that are dear to parse."""
    for name in (b"messages", b"prompt", b"other"):
        for unit in UNITS:
            yield _body(name, b"[" + unit * (BODY_BYTES // len(unit)) + b"0]")
        yield _body(name, b"[" * (BODY_BYTES // 2) + b"]" * (BODY_BYTES // 2))
        keys = b",".join(b'"%x":1' % number for number in range(BODY_BYTES // 10))
        yield _body(name, b"{" + keys + b"}")


def _body(name: bytes, value: bytes) -> bytes:
    return b'{"model":"demo","n_events":0,"' + name + b'":' + value + b"}"


async def post(port: int, body: bytes) -> bytes:
    """Send a body; return the first line of the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"
        b"content-length: %d\r\n\r\n" % len(body)
    )
    for at in range(0, len(body), 1 << 18):
        writer.write(body[at : at + (1 << 18)])
        await writer.drain()
    line = await reader.readline()
    writer.close()
    return line


def percentile_ms(ages_ns: list[int], share: float) -> float:
    return sorted(ages_ns)[int(share * (len(ages_ns) - 1))] / 1e6


if __name__ == "__main__":
    uvloop.run(engine(int(sys.argv[1])))
