"""What the router adds to a stream, and what a core of it carries.

    python bench/router.py [--seconds 8] [--streams 1,100,1000]

Starts an engine double, the real router process and a load generator on this machine. Each event
carries the monotonic time of its sending; added latency is the difference between the percentiles
through the router and straight to the engine, alternated. Everything shares the machine's cores, so
compare ratios of one run rather than figures of two.
"""

import argparse
import asyncio
import json
import os
import re
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvloop
from aiohttp import web

INTERVAL_S = 0.2
STAMP = re.compile(rb'"t":(\d{20})')
PAD = b"x" * 120
BODY = (
    b'{"model":"demo","stream":true,"messages":[{"role":"user","content":"hello"}],"n_events":%d}'
)


def event() -> bytes:
    return b'data: {"t":%020d,"pad":"%s"}\n\n' % (time.monotonic_ns(), PAD)


def framed(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
END = framed(b"data: [DONE]\n\n") + b"0\r\n\r\n"


# The engine double (its own process)


async def stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """20 events at once, or one each interval for as long as the request says."""
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"(?i)content-length: *(\d+)", head)
            body = await reader.readexactly(int(length[1]) if length else 0)
            count = int(json.loads(body)["n_events"])
            writer.write(HEAD)
            for _ in range(count or 20):
                writer.write(framed(event()))
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


async def steady(port: int, streams: int, seconds: float) -> list[int]:
    """Ages of the events of `streams` streams at 5 events a second; the first second is dropped."""
    loop = asyncio.get_running_loop()
    body = BODY % int(seconds / INTERVAL_S)
    ages: list[int] = []
    clients = []
    for _ in range(streams):
        _, client = await loop.create_connection(lambda: Client(body, ages), "127.0.0.1", port)
        clients.append(client)
        await asyncio.sleep(min(INTERVAL_S, 1.0) / streams)
    dropped = len(ages) + streams
    await asyncio.gather(*(client.done for client in clients))
    for client in clients:
        client.transport.close()
    return ages[dropped:]


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


def percentile_ms(ages_ns: list[int], share: float) -> float:
    return sorted(ages_ns)[int(share * (len(ages_ns) - 1))] / 1e6


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+)", status)
    return int(found[1]) / 1024 if found else 0.0


async def ready(port: int) -> None:
    for _ in range(200):
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /readyz HTTP/1.1\r\nhost: localhost\r\n\r\n")
            line = await reader.readline()
            writer.close()
            if b" 200 " in line or b" 501 " in line:
                return
        except ConnectionError:
            pass
        await asyncio.sleep(0.05)
    raise TimeoutError("the router did not become ready")


async def measure(ports: dict[str, int], pid: int, args: argparse.Namespace) -> dict[str, Any]:
    report: dict[str, Any] = {"cores": os.cpu_count(), "load_before": os.getloadavg()[0]}
    for streams in args.streams:
        ages: dict[str, list[int]] = {"direct": [], "router": []}
        busy = 0.0
        for _ in range(2):  # alternate, so that both see the machine's other work
            for way, port in ports.items():
                before = cpu_s(pid)
                ages[way] += await steady(port, streams, args.seconds / 2)
                busy += cpu_s(pid) - before if way == "router" else 0.0
        row = {
            f"{way}_p{share}_ms": round(percentile_ms(ages[way], share / 100), 3)
            for way in ages
            for share in (50, 99)
        }
        for share in (50, 99):
            row[f"added_p{share}_ms"] = round(
                row[f"router_p{share}_ms"] - row[f"direct_p{share}_ms"], 3
            )
        row["router_cpu_us_per_event"] = round(busy * 1e6 / max(1, len(ages["router"])), 1)
        report[f"streams_{streams}"] = row
        print(streams, "streams", json.dumps(row), flush=True)
    for clients in (1, 32, 256):
        before = cpu_s(pid)
        elapsed = await burst(ports["router"], clients, args.requests)
        direct = await burst(ports["direct"], clients, args.requests)
        row = {
            "requests_per_s": round(args.requests / elapsed),
            "direct_requests_per_s": round(args.requests / direct),
            "requests_per_core_s": round(args.requests / (cpu_s(pid) - before)),
        }
        report[f"clients_{clients}"] = row
        print(clients, "clients", json.dumps(row), flush=True)
    report["router_peak_mib"] = round(peak_mib(pid), 1)
    return report


async def run(args: argparse.Namespace) -> None:
    ports = {way: free_port() for way in ("direct", "router")}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "api.sock"
        async with api(path, ports["direct"]):
            commands = [
                [__file__, "--engine-port", str(ports["direct"])],
                ["-m", "yaie_router", "--api-socket", str(path)],
            ]
            commands[1] += ["--port", str(ports["router"]), "--log-level", args.log_level]
            processes = [
                await asyncio.create_subprocess_exec(
                    sys.executable, *command, stderr=asyncio.subprocess.DEVNULL
                )
                for command in commands
            ]
            try:
                await ready(ports["router"])
                print(json.dumps(await measure(ports, processes[1].pid, args), indent=1))
            finally:
                for process in processes:
                    process.terminate()
                    await process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=8.0, help="of each steady measurement")
    parser.add_argument(
        "--streams", type=lambda text: [int(n) for n in text.split(",")], default=[1, 100, 1000]
    )
    parser.add_argument("--requests", type=int, default=5120, help="of each burst")
    parser.add_argument("--log-level", default="info", help="of the router (default: %(default)s)")
    parser.add_argument("--engine-port", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    uvloop.run(engine(args.engine_port) if args.engine_port else run(args))


if __name__ == "__main__":
    main()
