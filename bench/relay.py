"""What the router adds to a stream, beside nginx: CPU an event, latency, requests a core, memory.

    apt-get install --no-install-recommends nginx-light
    python bench/relay.py [--rounds 5] [--streams 1000] [--check] [--output FILE.md]

Starts an engine double (`streams`), nginx as a plain reverse proxy (no buffering, connections
to the engine kept open, its access log on) and the router with its default settings, and loads them
in turn, round by round; a figure is the median of the rounds. CPU time is the kernel's count for
the process, so that other work on the machine matters less; latency is what it is, so compare it
within one run only. `--check` exits with 1 where a line is missed.
"""

import argparse
import asyncio
import json
import os
import re
import resource
import shutil
import signal
import socket
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import streams
import turns
import uvloop

MOST_CPU_RATIO = 1.7
LEAST_REQUESTS = 6000
MOST_P99_RATIO = 2.0
SOFT_DESCRIPTORS = 1024
PROMPT_BYTES = 200 << 10
MOST_STALL_MS = 50.0
SETTLE_S = 2.0
"""Until the ends of all streams at a time are worked off: they are no stall by a body."""
BASE_MIB, STREAM_MIB = 128.0, 64 / 1024
UNFINISHED = 500
UNFINISHED_MIB = 256 / 4 + UNFINISHED * (64 / 1024 + STREAM_MIB)
"""What so many bodies may take of which a part is missing: a quarter of the budget of 256 MiB, the
64 KiB that count for nothing, and a stream's memory for each connection."""
NGINX = """\
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
worker_rlimit_nofile 16384;
events {{ worker_connections 8192; }}
http {{
  access_log {folder}/access.log;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  keepalive_requests 1000000;
  upstream engine {{ server 127.0.0.1:{engine}; keepalive 2048; keepalive_requests 1000000; }}
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    client_max_body_size 8m;
    location / {{
      proxy_pass http://engine;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
    }}
  }}
}}
"""


@dataclass
class Way:
    """How the engine is reached, and what was measured on it, round by round."""

    name: str
    port: int
    pid: int = 0
    cpu_us: list[float] = field(default_factory=list)
    p50_ms: list[float] = field(default_factory=list)
    p99_ms: list[float] = field(default_factory=list)
    requests: list[float] = field(default_factory=list)

    def spent_s(self) -> float:
        """CPU time of the process until now: of all its threads."""
        folder = Path(f"/proc/{self.pid}/task")
        return (
            sum(int((one / "schedstat").read_text().split()[0]) for one in folder.iterdir()) / 1e9
        )

    def peak_mib(self) -> float:
        return self._memory_mib("VmHWM")

    def resident_mib(self) -> float:
        return self._memory_mib("VmRSS")

    def _memory_mib(self, name: str) -> float:
        found = re.search(rf"{name}:\s+(\d+)", Path(f"/proc/{self.pid}/status").read_text())
        return int(found[1]) / 1024 if found else 0.0


@dataclass(frozen=True)
class Held:
    """What a fresh router needed for streams with long prompts, and for hostile bodies."""

    streams: int
    peak_mib: float
    leaving_ms: float
    stall_ms: float
    unfinished_mib: float


async def one_round(ways: Sequence[Way], given: argparse.Namespace) -> None:
    """Load each way in turn."""
    for way in ways:
        spent: Callable[[], float] = way.spent_s if way.pid else (lambda: 0.0)
        window = await streams.steady(way.port, given.streams, given.seconds, spent)
        way.p50_ms.append(streams.percentile_ms(window.ages_ns, 0.5))
        way.p99_ms.append(streams.percentile_ms(window.ages_ns, 0.99))
        if way.pid:
            way.cpu_us.append(window.cpu_s * 1e6 / max(1, window.events))
    for way in ways:
        if way.pid:
            before_s = way.spent_s()
            await streams.burst(way.port, given.clients, given.requests)
            way.requests.append(given.requests / (way.spent_s() - before_s))


async def held_mib(way: Way, count: int) -> float:
    """Peak memory of a fresh process that has held `count` long prompts at a time."""
    body = streams.BODY.replace(b"hello", b"x" * PROMPT_BYTES)
    body = body.replace(b'"n_events"', b'"after_s":5,"n_events"')
    await streams.steady(way.port, count, 1.0, way.spent_s, body)
    return way.peak_mib()


async def leaving_ms(way: Way, ticks: Path, count: int) -> float:
    """The longest turn of the router's event loop as all streams' clients leave at once."""
    os.kill(way.pid, signal.SIGUSR1)
    await streams.steady(way.port, count, 1.0, way.spent_s)
    await asyncio.sleep(SETTLE_S)
    return turns.longest_s(ticks) * 1e3


async def unfinished_mib(way: Way) -> float:
    """What the process grows by while bodies wait for their last bytes, refused ones included."""
    before_mib = way.resident_mib()
    body = streams.BODY % 0
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n"
    writers = []
    for _ in range(UNFINISHED):
        _, writer = await asyncio.open_connection("127.0.0.1", way.port)
        writer.write(head % (PROMPT_BYTES + 100) + body + b" " * (PROMPT_BYTES - len(body)))
        writers.append(writer)
    await asyncio.sleep(SETTLE_S)
    grown_mib = way.resident_mib() - before_mib
    for writer in writers:
        writer.close()
    return grown_mib


async def stall_ms(way: Way) -> float:
    """The longest time of CPU that the router took while somebody waited for `/livez`, as bodies
    came that are dear to parse. CPU, so that what the machine does beside it does not count.
    """
    found = 0.0
    for body in streams.hostile_bodies():
        sent = asyncio.create_task(streams.post(way.port, body))
        reader, writer = await asyncio.open_connection("127.0.0.1", way.port)
        while not sent.done():
            before_s = way.spent_s()
            writer.write(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n")
            await reader.readuntil(b'"ok"}')
            found = max(found, (way.spent_s() - before_s) * 1e3)
            await asyncio.sleep(0.001)
        writer.close()
        await sent
    return found


# Processes


@asynccontextmanager
async def process(*command: str, descriptors: int = 0) -> AsyncIterator[int]:
    """A child that ends with the context. `descriptors`: its soft limit of open files."""

    def limit() -> None:
        if descriptors:
            _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, hard))

    child = await asyncio.create_subprocess_exec(
        *command, stderr=asyncio.subprocess.DEVNULL, preexec_fn=limit
    )
    try:
        yield child.pid
    finally:
        child.terminate()
        await child.wait()


@asynccontextmanager
async def router(
    folder: Path, *, descriptors: int = 0, ticks: Path | None = None
) -> AsyncIterator[Way]:
    """The router with its default settings. `ticks`: where its longest turn is noted (`turns`)."""
    way = Way("router", free_port())
    flags = (
        "--api-socket",
        str(folder / "api.sock"),
        "--port",
        str(way.port),
        "--metrics-port",
        "0",
    )
    program = ("-m", "yaie_router") if ticks is None else (str(Path(turns.__file__)), str(ticks))
    command = (sys.executable, *program, *flags)
    async with process(*command, descriptors=descriptors) as way.pid:
        await ready(way.port)
        yield way


@asynccontextmanager
async def nginx(folder: Path, engine: int) -> AsyncIterator[Way]:
    way = Way("nginx", free_port())
    config = folder / "nginx.conf"
    config.write_text(NGINX.format(folder=folder, port=way.port, engine=engine))
    found = shutil.which("nginx") or "/usr/sbin/nginx"
    async with process(found, "-p", str(folder), "-c", str(config)) as way.pid:
        await ready(way.port)
        yield way


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def ready(port: int) -> None:
    """Wait until something answers: the router when it knows the engine, nginx with anything."""
    for _ in range(400):
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /readyz HTTP/1.1\r\nhost: localhost\r\n\r\n")
            line = await reader.readline()
            writer.close()
            if line and b" 503 " not in line:
                return
        except ConnectionError:
            pass
        await asyncio.sleep(0.05)
    raise TimeoutError("no answer")


# The report


def rows(direct: Way, others: Sequence[Way]) -> list[str]:
    lines = [
        "| | CPU us an event | added p50 ms | added p99 ms | 20-event requests a core-second |",
        "|---|---|---|---|---|",
    ]
    for way in others:
        told = [f"{statistics.median(way.cpu_us):.1f}"]
        told += [f"{added(way, direct, share):.2f}" for share in ("p50_ms", "p99_ms")]
        told.append(f"{statistics.median(way.requests):,.0f}")
        lines.append(f"| {way.name} | {' | '.join(told)} |")
    return lines


def added(way: Way, direct: Way, share: str) -> float:
    """The median over rounds of what the way adds to this percentile."""
    pairs = zip(getattr(way, share), getattr(direct, share), strict=True)
    return float(statistics.median(through - straight for through, straight in pairs))


def missed(direct: Way, proxy: Way, ours: Way, held: "Held") -> list[str]:
    """What is not as it is to be."""
    cpu, cpu_of_nginx = statistics.median(ours.cpu_us), statistics.median(proxy.cpu_us)
    requests = statistics.median(ours.requests)
    p99_ms, p99_of_nginx_ms = added(ours, direct, "p99_ms"), added(proxy, direct, "p99_ms")
    most_mib = BASE_MIB + held.streams * (STREAM_MIB + PROMPT_BYTES / (1 << 20))
    found = {
        f"CPU an event {cpu:.1f} us, nginx {cpu_of_nginx:.1f}": cpu > MOST_CPU_RATIO * cpu_of_nginx,
        f"{requests:.0f} requests a core-second": requests < LEAST_REQUESTS,
        f"added p99 {p99_ms:.2f} ms, nginx {p99_of_nginx_ms:.2f}": p99_ms
        > MOST_P99_RATIO * p99_of_nginx_ms,
        f"{held.peak_mib:.0f} MiB of {most_mib:.0f}": held.peak_mib > most_mib,
        f"a stall of {held.stall_ms:.0f} ms": held.stall_ms > MOST_STALL_MS,
        f"a turn of {held.leaving_ms:.0f} ms": held.leaving_ms > MOST_STALL_MS,
        f"{held.unfinished_mib:.0f} MiB of unfinished bodies": held.unfinished_mib > UNFINISHED_MIB,
    }
    return [text for text, is_missed in found.items() if is_missed]


async def run(given: argparse.Namespace) -> int:
    direct = Way("direct", free_port())
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        await stack.enter_async_context(streams.api(folder / "api.sock", direct.port))
        double = str(Path(streams.__file__))
        await stack.enter_async_context(process(sys.executable, double, str(direct.port)))
        async with router(folder, descriptors=SOFT_DESCRIPTORS) as way:
            peak_mib = await held_mib(way, given.streams)
            await asyncio.sleep(SETTLE_S)
            stalled_ms = await stall_ms(way)
        ticks = folder / "ticks"
        async with router(folder, ticks=ticks) as way:
            left_ms = await leaving_ms(way, ticks, given.streams)
            grown_mib = await unfinished_mib(way)
        held = Held(given.streams, peak_mib, left_ms, stalled_ms, grown_mib)
        ours = await stack.enter_async_context(router(folder))
        proxy = await stack.enter_async_context(nginx(folder, direct.port))
        for turn in range(given.rounds):
            await one_round((direct, proxy, ours), given)
            latest = {way.name: (way.cpu_us[-1], way.requests[-1]) for way in (proxy, ours)}
            print(f"round {turn + 1}:", json.dumps(latest), flush=True)
    misses = missed(direct, proxy, ours, held)
    load = f"{given.streams} streams of 5 events a second, then {given.clients} clients"
    machine = f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    prompts = f"{given.streams} streams of {PROMPT_BYTES >> 10} KiB prompts"
    kept = f"Peak memory with {prompts}, begun with `ulimit -n {SOFT_DESCRIPTORS}`"
    text = [
        f"{load}; median of {given.rounds} rounds; {machine}.",
        "",
        *rows(direct, (proxy, ours)),
        "",
        f"{kept}: {held.peak_mib:.0f} MiB.",
        f"Longest stall by a hostile body: {held.stall_ms:.0f} ms.",
        f"Longest turn as {given.streams} clients leave at once: {held.leaving_ms:.0f} ms.",
        f"{UNFINISHED} unfinished bodies of 200 KiB: {held.unfinished_mib:.0f} MiB more.",
        *(f"Missed: {one}." for one in misses),
    ]
    print("\n".join(text))
    if given.output:
        given.output.write_text("\n".join(text) + "\n")
    return int(given.check and bool(misses))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each steady measurement")
    parser.add_argument("--clients", type=int, default=32, help="of each burst")
    parser.add_argument("--requests", type=int, default=2048, help="of each burst")
    parser.add_argument("--check", action="store_true", help="exit with 1 where a line is missed")
    parser.add_argument("--output", type=Path)
    code: int = uvloop.run(run(parser.parse_args()))
    return code


if __name__ == "__main__":
    sys.exit(main())
