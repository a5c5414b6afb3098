"""The promises about speed that hold on any machine, measured in one run: ratios, not milliseconds.

    python bench/promises.py [--model builtin://yaie-demo] [--json FILE]

    batching, offline   16 concurrent requests (128 in, 256 out) against one, through LLM.generate
    batching, HTTP      the same through `yaie serve`, clients on the same cores
    prefix cache        first token of a 2,000-token prompt, first time against second time
    no stall            15 streams while a 2,000-token prompt arrives: their largest gap against the
                        time target of a step (--step-time-target-s) and one step of decodes

Every pair is interleaved and repeated; the table shows medians. Exit status 1 when one fails.
"""

import argparse
import asyncio
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

import aiohttp
import msgspec

CONCURRENT = 16
PROMPT, OUTPUT = 128, 256
LONG_PROMPT = 2000
STEP_TARGET_S = 0.05
"""The default of --step-time-target-s on a CPU."""
ROUNDS = 3


@dataclass(frozen=True)
class Finding:
    """One promise: what was measured, what is asked for, and if it held."""

    promise: str
    measured: str
    goal: str
    held: bool


def prompt(rng: random.Random, length: int) -> list[int]:
    """Random token ids of the built-in model's vocabulary."""
    return [rng.randrange(300, 4000) for _ in range(length)]


def offline_batching(model: str, rng: random.Random) -> Finding:
    """Tokens/s of 16 requests at once over those of one."""
    from yaie import LLM, SamplingParams

    llm = LLM(model, enable_prefix_caching=False)
    sampling = SamplingParams(temperature=0.0, max_tokens=OUTPUT, ignore_eos=True)

    def rate(requests: int) -> float:
        prompts = [prompt(rng, PROMPT) for _ in range(requests)]
        start = time.perf_counter()
        outputs = llm.generate(prompts, sampling, use_tqdm=False)
        tokens = sum(len(output.outputs[0].token_ids) for output in outputs)
        assert tokens == requests * OUTPUT
        return tokens / (time.perf_counter() - start)

    rate(2)
    pairs = [(rate(1), rate(CONCURRENT)) for _ in range(ROUNDS)]
    return _ratio_finding("batching, offline", pairs, goal=4.0)


def _ratio_finding(promise: str, pairs: list[tuple[float, float]], goal: float) -> Finding:
    ratio = statistics.median(many / one for one, many in pairs)
    one, many = (statistics.median(column) for column in zip(*pairs, strict=True))
    measured = f"{one:.0f} -> {many:.0f} tokens/s, {ratio:.1f}x"
    return Finding(promise, measured, f">= {goal:g}x", ratio >= goal)


@contextmanager
def server(model: str) -> Iterator[str]:
    """A running `yaie serve`; gives its base URL."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "yaie", "serve", model, "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    base = f"http://127.0.0.1:{port}"
    try:
        asyncio.run(_wait_ready(base, process))
        yield base
    finally:
        process.terminate()
        process.wait(timeout=30)


async def _wait_ready(base: str, process: subprocess.Popen[bytes], limit_s: float = 120.0) -> None:
    deadline = time.monotonic() + limit_s
    async with aiohttp.ClientSession() as session:
        while time.monotonic() < deadline and process.poll() is None:
            try:
                async with session.get(f"{base}/readyz") as response:
                    if response.status == 200:
                        return
            except aiohttp.ClientConnectionError:
                pass  # not listening yet
            await asyncio.sleep(0.1)
    raise RuntimeError("the server did not become ready")


async def stream(
    session: aiohttp.ClientSession, base: str, ids: list[int], max_tokens: int
) -> AsyncIterator[float]:
    """Arrival times of the text chunks of one completion."""
    body = {
        "model": "yaie-demo",
        "prompt": ids,
        "max_tokens": max_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
    }
    async with session.post(f"{base}/v1/completions", json=body) as response:
        assert response.status == 200, await response.text()
        async for line in response.content:
            if line.startswith(b"data: {"):
                yield time.perf_counter()


async def http_rate(base: str, rng: random.Random, requests: int) -> float:
    """Tokens/s of `requests` concurrent streams."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def one() -> None:
            async for _ in stream(session, base, prompt(rng, PROMPT), OUTPUT):
                pass

        start = time.perf_counter()
        await asyncio.gather(*(one() for _ in range(requests)))
        return requests * OUTPUT / (time.perf_counter() - start)


def http_batching(base: str, rng: random.Random) -> Finding:
    """As `offline_batching`, over HTTP."""
    asyncio.run(http_rate(base, rng, 2))
    pairs = [
        (asyncio.run(http_rate(base, rng, 1)), asyncio.run(http_rate(base, rng, CONCURRENT)))
        for _ in range(ROUNDS)
    ]
    return _ratio_finding("batching, HTTP", pairs, goal=3.0)


async def first_token_s(base: str, ids: list[int]) -> float:
    """Seconds from sending a prompt to its first chunk."""
    async with aiohttp.ClientSession() as session:
        start = time.perf_counter()
        times = [moment async for moment in stream(session, base, ids, 1)]
        return times[0] - start


def prefix_cache(base: str, rng: random.Random) -> Finding:
    """Time to first token of a long prompt, first time over second time."""
    pairs = []
    for _ in range(ROUNDS + 2):
        ids = prompt(rng, LONG_PROMPT)
        pairs.append((asyncio.run(first_token_s(base, ids)), asyncio.run(first_token_s(base, ids))))
    ratio = statistics.median(first / again for first, again in pairs)
    first, again = (statistics.median(column) * 1e3 for column in zip(*pairs, strict=True))
    measured = f"{first:.0f} -> {again:.1f} ms, {ratio:.1f}x"
    return Finding("prefix cache", measured, ">= 5x sooner", ratio >= 5.0)


async def gaps_under_prefill(base: str, rng: random.Random) -> tuple[list[float], float, float]:
    """The largest gap of each of 15 streams while a long prompt is computed; the usual gap before
    it came; and how long it took.
    """
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        arrivals: list[list[float]] = [[] for _ in range(CONCURRENT - 1)]

        async def decode(times: list[float]) -> None:
            async for moment in stream(session, base, prompt(rng, PROMPT), 4 * OUTPUT):
                times.append(moment)  # noqa: PERF401 - watched while it grows

        tasks = [asyncio.create_task(decode(times)) for times in arrivals]
        while min(map(len, arrivals)) < 32:  # noqa: ASYNC110 - lists have no event
            await asyncio.sleep(0.01)
        start = time.perf_counter()
        (end, *_) = [moment async for moment in stream(session, base, prompt(rng, LONG_PROMPT), 1)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        gaps = [
            max(later - earlier for earlier, later in pairwise(times) if start < later < end)
            for times in arrivals
        ]
        before = [
            later - earlier
            for times in arrivals
            for earlier, later in pairwise(times)
            if later < start
        ]
        return gaps, statistics.median(before), end - start


def no_stall(base: str, rng: random.Random) -> Finding:
    """The largest gap, and what the target and one step of decodes allow."""
    runs = [asyncio.run(gaps_under_prefill(base, rng)) for _ in range(ROUNDS)]
    # Half of the streams: in some, a token that ends inside a character shows with the next one.
    largest = statistics.median(statistics.median(gaps) for gaps, _, _ in runs)
    decode_s = statistics.median(step_s for _, step_s, _ in runs)
    allowed = STEP_TARGET_S + decode_s
    measured = (
        f"largest {largest * 1e3:.0f} ms, a step of decodes {decode_s * 1e3:.0f} ms "
        f"(prompt done in {statistics.median(t for *_, t in runs) * 1e3:.0f} ms)"
    )
    return Finding("no stall", measured, f"<= {allowed * 1e3:.0f} ms", largest <= allowed)


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="builtin://yaie-demo")
    parser.add_argument("--json", type=Path, help="write the findings here too")
    parser.add_argument("--only", help="run only the promise that starts so")
    arguments = parser.parse_args()
    rng = random.Random(7)
    findings = []

    def run(name: str, measure: object, *args: object) -> None:
        if arguments.only is None or name.startswith(arguments.only):
            findings.append(measure(*args))  # type: ignore[operator]
            print("{0.promise:<20}{0.measured:<75}{0.goal:<22}".format(findings[-1]), end="")
            print("held" if findings[-1].held else "FAILED", flush=True)

    run("batching, offline", offline_batching, arguments.model, rng)
    with server(arguments.model) as base:
        run("batching, HTTP", http_batching, base, rng)
        run("prefix cache", prefix_cache, base, rng)
        run("no stall", no_stall, base, rng)
    if arguments.json:
        report = {"cores": os.cpu_count(), "findings": [asdict(item) for item in findings]}
        arguments.json.write_bytes(msgspec.json.format(json.dumps(report).encode()))
    return 0 if all(finding.held for finding in findings) else 1


if __name__ == "__main__":
    sys.exit(main())
