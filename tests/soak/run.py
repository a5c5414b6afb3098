"""`make soak`: many clients of mixed kinds against `yaie serve` on the CPU, a third of whom vanish.

    python tests/soak/run.py [--clients 200] [--minutes 10] [--seed 1]

It passes when every request that was read to its end was answered exactly once and completely (or
refused with a time to come back), the pages in use return to zero, nothing is left running, and the
memory of both processes stays flat after the first third. (A run of less than five minutes fills
caches all the time: there memory is shown and not judged.)
"""

import argparse
import asyncio
import os
import random
import re
import signal
import socket
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
from kinds import MODEL, Wish, wish

WARM_SHARE = 0.3
MAX_GROWTH_MIB = 24
"""Of both processes together, after the warm-up: caches have bounds, leaks have none."""
JUDGED_FROM_MINUTES = 5.0
RETRYABLE = {429, 503}
PAGES = ("yaie_engine_kv_pages", "yaie_engine_kv_pages_free", "yaie_engine_kv_pages_cached")


@dataclass
class Tally:
    """What became of the requests. `broken` holds the first few that were not as they must be."""

    outcomes: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)
    memory_mib: list[float] = field(default_factory=list)


async def client(url: str, seed: int, until_s: float, tally: Tally) -> None:
    """One user after another: some read the answer, a third leave at a random byte."""
    rng = random.Random(seed)
    async with aiohttp.ClientSession(url, timeout=aiohttp.ClientTimeout(total=300)) as session:
        while time.monotonic() < until_s:
            one, leaves = wish(rng), rng.random() < 1 / 3
            try:
                await _ask(session, one, rng.randint(0, 4000) if leaves else None, tally)
            except (AssertionError, aiohttp.ClientError, TimeoutError, ValueError) as error:
                tally.outcomes["broken"] += 1
                tally.broken.append(f"{one.kind}: {type(error).__name__}: {str(error)[:300]}")


async def _ask(
    session: aiohttp.ClientSession, one: Wish, leave_after: int | None, tally: Tally
) -> None:
    async with session.post(one.path, json=one.body) as response:
        if leave_after is not None:
            left = leave_after
            while left > 0 and (piece := await response.content.read(left)):
                left -= len(piece)
            response.close()
            tally.outcomes["left"] += 1
            return
        answer = await response.read()
        if response.status in RETRYABLE:
            assert int(response.headers["retry-after"]) >= 1
            tally.outcomes["refused for now"] += 1
            return
        assert response.status == one.status, answer[:300]
        one.complete(answer)
        tally.outcomes[one.kind] += 1


async def watch(pid: int, tally: Tally, every_s: float) -> None:
    """Note the memory of the server and its engine."""
    while True:
        await asyncio.sleep(every_s)
        tally.memory_mib.append(sum(map(_resident_mib, (pid, *_children(pid)))))


async def soak(arguments: argparse.Namespace) -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "yaie", "serve", "builtin://yaie-demo", "--port", str(port),
        "--served-model-name", MODEL, "--device", "cpu", "--log-level", "warning",
        "--kv-cache-tokens", "6144", "--swap-space-gib", "0.05",
    )  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    tally = Tally()
    try:
        await _ready(url)
        every_s = max(1.0, arguments.minutes * 60 / 120)
        watching = asyncio.create_task(watch(server.pid, tally, every_s))
        until_s = time.monotonic() + arguments.minutes * 60
        seeds = range(arguments.seed * 1000, arguments.seed * 1000 + arguments.clients)
        await asyncio.gather(*(client(url, seed, until_s, tally) for seed in seeds))
        watching.cancel()
        await asyncio.sleep(3)
        judged = arguments.minutes >= JUDGED_FROM_MINUTES
        return _verdict(tally, await _metrics(url), memory_counts=judged)
    finally:
        server.send_signal(signal.SIGTERM)
        await server.wait()


def _verdict(tally: Tally, metrics: dict[str, float], *, memory_counts: bool) -> int:
    total, free, cached = (metrics[name] for name in PAGES)
    warm = int(len(tally.memory_mib) * WARM_SHARE)
    tail = len(tally.memory_mib) // 10 or 1
    before = sum(tally.memory_mib[warm : warm + tail]) / tail
    after = sum(tally.memory_mib[-tail:]) / tail
    print("requests:", sum(tally.outcomes.values()), dict(tally.outcomes.most_common()))
    print(f"pages in use: {total - free - cached:g} of {total:g} ({cached:g} cached)")
    shown = [f"{value:.0f}" for value in tally.memory_mib[:: max(1, len(tally.memory_mib) // 10)]]
    print(f"memory: {before:.0f} MiB after the warm-up, {after:.0f} MiB at the end:", *shown)
    print(f"preemptions: {metrics.get('yaie_engine_preemptions_total', 0):g}")
    for line in tally.broken[:10]:
        print("BROKEN", line)
    busy = metrics["yaie_engine_running_requests"] + metrics["yaie_engine_waiting_requests"]
    checks = {
        "every answer is complete": not tally.outcomes["broken"],
        "no page is left in use": total == free + cached,
        "nothing is left running": busy == 0,
        "memory is flat": after - before <= MAX_GROWTH_MIB or not memory_counts,
    }
    for name, held in checks.items():
        print("ok  " if held else "FAIL", name)
    return int(not all(checks.values()))


async def _ready(url: str) -> None:
    async with aiohttp.ClientSession(url) as session:
        for _ in range(600):
            try:
                async with session.get("/readyz") as response:
                    if response.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.2)
    raise TimeoutError("the server was not ready within two minutes")


async def _metrics(url: str) -> dict[str, float]:
    async with aiohttp.ClientSession(url) as session, session.get("/metrics") as response:
        text = await response.text()
    return {
        name: float(value) for name, value in re.findall(r"^(\w+) ([\d.e+-]+)$", text, re.MULTILINE)
    }


def _resident_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in text.split()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    return asyncio.run(soak(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
