"""Replays traces on real engines on the CPU, and says how far the simulator was off.

    PYTHONPATH=tests python bench/placed.py [--engines 4] [--requests 240] [--check]

Starts a router and engines with small caches on loopback, of the built-in model made slower
(`routing.model`), and sends the traces of `bench/replay.py` in small: first with round robin to as
many clients as keep all engines busy, then `PAST` times as fast as that was answered, with the
model's policy and round robin in turn. Hits are what the engines say in `usage`. `explained`: how
many choices of the policy come out the same when made again from `x-yaie-route`. `--check` exits
with 1 where the policy misses a goal.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import aiohttp
from replay import BALANCE, HITS, Goals
from routing.engine import Costs
from routing.model import write_widened
from routing.requests import begin
from routing.rivals import RIVALS
from routing.traces import WORKLOADS, Session, Shape
from routing.world import Outcome, World

from ports import free_port
from router.explained import chosen_again
from router.fakes import FakeApi, inference_model
from router.faults.matrix import answered, process, publish, router

MODEL: Final = "yaie-demo"
PAST: Final = 1.6
"""Requests that come, as a multiple of what the engines end under round robin: past its knee."""
MORE: Final = 1.4
FASTER: Final = 2.0
"""Times round robin's throughput and its speed to the first token, past its knee."""
WIDTH: Final = 8192
BYTES_PER_TOKEN: Final = 3.0
CPU: Final = Costs(
    step_s=0.012,
    row_s=0.001,
    prefill_rate=1500.0,
    budget=512,
    seats=16,
    bytes_per_token=BYTES_PER_TOKEN,
)


@dataclass
class Seen:
    """What one request met. `tokens`: of its prompt."""

    engine: str
    tokens: int
    cached: int
    ttft_s: float
    outcome: str
    is_explained: bool


@dataclass
class Run:
    """The requests of one trace under one policy, and the seconds that all of them took."""

    seen: list[Seen] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Requests a second."""
        return len(self.seen) / self.seconds

    @property
    def prefill_rate(self) -> float:
        """Tokens of prompts that were computed in a second."""
        return sum(one.tokens - one.cached for one in self.seen) / self.seconds

    @property
    def ttft_s(self) -> float:
        """The median."""
        return statistics.median(one.ttft_s for one in self.seen)

    @property
    def hits(self) -> float:
        return sum(one.cached for one in self.seen) / sum(one.tokens for one in self.seen)

    @property
    def counts(self) -> Counter[str]:
        return Counter(one.engine for one in self.seen)

    def balance(self, engines: int) -> float:
        return max(self.counts.values()) / (len(self.seen) / engines)


async def replay(
    session: aiohttp.ClientSession, sessions: Sequence[Session], clients: int | None = None
) -> Run:
    """Send all sessions: so many at a time, one after another; None: each as it arrives."""
    run, waiting, began_s = Run(), list(reversed(sessions)), time.perf_counter()

    async def client() -> None:
        while waiting:
            await converse(session, waiting.pop(), run)

    async def arrive(one: Session) -> None:
        await asyncio.sleep(one.starts_s)
        await converse(session, one, run)

    async with asyncio.TaskGroup() as group:
        if clients is None:
            for one in sessions:
                group.create_task(arrive(one))
        for _ in range(clients or 0):
            group.create_task(client())
    run.seconds = time.perf_counter() - began_s
    return run


async def converse(session: aiohttp.ClientSession, one: Session, run: Run) -> None:
    """Send the turns of a session, each with the answers before it."""
    messages = begin(one)
    for turn in one.turns:
        await asyncio.sleep(turn.after_s)
        messages.append({"role": "user", "content": turn.text})
        body = {
            "model": MODEL,
            "messages": messages,
            "max_tokens": turn.answer_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        text, seen = await ask(session, body)
        run.seen.append(seen)
        messages.append({"role": "assistant", "content": text})


async def ask(session: aiohttp.ClientSession, body: dict[str, Any]) -> tuple[str, Seen]:
    """Send one request; returns its answer's text."""
    began_s, first_s, text, usage = time.perf_counter(), 0.0, "", dict[str, Any]()
    async with session.post(
        "/v1/chat/completions", json=body, headers={"x-yaie-route": "1"}
    ) as answer:
        if answer.status != 200:
            raise RuntimeError(f"{answer.status}: {await answer.text()}")
        async for line in answer.content:
            if not line.startswith(b"data: {"):
                continue
            chunk = json.loads(line[6:])
            usage = chunk.get("usage") or usage
            for choice in chunk["choices"]:
                first_s = first_s or time.perf_counter() - began_s
                text += choice["delta"].get("content") or ""
        route = dict(part.split("=", 1) for part in answer.headers["x-yaie-route"].split("; "))
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        engine = answer.headers["x-yaie-endpoint"]
    names = [f"pod-{number}" for number in range(int(route["engines"]))]
    is_explained = "options" in route and chosen_again(route, names) == engine
    seen = Seen(
        engine, usage["prompt_tokens"], cached, first_s, route["outcome"], is_explained=is_explained
    )
    return text, seen


def forecast(
    sessions: Sequence[Session], rival: str, costs: Costs, given: argparse.Namespace
) -> tuple[Outcome, Sequence[str]]:
    """What the simulator says of the same trace, and the names of its engines."""
    world = World(
        sessions,
        costs,
        engines=given.engines,
        cache_tokens=given.cache_tokens,
        make=RIVALS[rival],
    )
    return world.run(), world.names


HEADER: Final = """\
| trace | policy | requests | hits | forecast | error | of the oracle | max/mean requests \
| forecast | requests/s | TTFT p50 ms | explained | outcomes | requests by engine |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|"""


def told(name: str, rival: str, run: Run, expected: Outcome, engines: Sequence[str]) -> str:
    """A row of the table: what was found, beside what the simulator says of the same trace."""
    hits = expected.cached / expected.prompt
    cells = (
        name,
        rival,
        len(run.seen),
        f"{run.hits:.3f}",
        f"{hits:.3f}",
        f"{run.hits - hits:+.3f}",
        f"{share_of(run, expected):.3f}",
        f"{run.balance(len(engines)):.2f}",
        f"{expected.balance(engines, lambda _: 1):.2f}",
        f"{run.rate:.1f}",
        f"{1000 * run.ttft_s:.0f}",
        sum(one.is_explained for one in run.seen),
        dict(sorted(Counter(one.outcome for one in run.seen).items())),
        [run.counts[f"pod-{i}"] for i in range(len(engines))],
    )
    return f"| {' | '.join(map(str, cells))} |"


def share_of(run: Run, expected: Outcome) -> float:
    """Hits, as a share of those of one cache of all engines' size."""
    return run.hits / (expected.oracle / expected.prompt)


def judge(goals: Goals, name: str, runs: Mapping[str, Run], share: float, engines: int) -> None:
    """The policy's figures of one trace beside their goals; `share`: its hits of the oracle's."""
    placed, other = runs["placed"], runs["round robin"]
    explained = sum(one.is_explained for one in placed.seen) / len(placed.seen)
    goals.judge(f"{name}, hits of the oracle's", share, HITS, at_least=True)
    goals.judge(f"{name}, max/mean", placed.balance(engines), BALANCE, at_least=False)
    goals.judge(f"{name}, explained", explained, 1.0, at_least=True)
    if (other := runs.get("round robin")) is not None:
        what = f"{name}, times round robin's"
        goals.judge(f"{what} throughput", placed.rate / other.rate, MORE, at_least=True)
        goals.judge(f"{what} speed to the first token", other.ttft_s / placed.ttft_s, FASTER,
                    at_least=True)  # fmt: skip


async def forget(session: aiohttp.ClientSession, admin: Sequence[int]) -> None:
    """Empty the prefix caches of all engines."""
    for port in admin:
        async with session.post(f"http://127.0.0.1:{port}/reset_prefix_cache") as answer:
            answer.raise_for_status()
    await asyncio.sleep(1.0)


async def main(given: argparse.Namespace) -> int:
    """Measure, print, and return the exit status."""
    os.environ["YAIE_PREFIX_KEY"] = os.urandom(16).hex()
    goals = Goals()
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        model = write_widened(folder / MODEL, given.width)
        ports = [free_port() for _ in range(given.engines)]
        admin = [free_port() for _ in range(given.engines)]
        for port, control in zip(ports, admin, strict=True):
            flags = ("--port", port, "--admin-port", control, "--cpu-threads", 1)
            size = ("--kv-cache-tokens", given.cache_tokens, "--max-num-seqs", 16)
            words = ("-m", "yaie", "serve", model, "--served-model-name", MODEL, *flags, *size)
            await stack.enter_async_context(process(*map(str, words)))
        for port in ports:
            await answered(f"http://127.0.0.1:{port}/readyz")
        api = FakeApi(folder / "api.sock")
        await api.start()
        stack.push_async_callback(api.stop)
        running = await stack.enter_async_context(router(api, deadlines={}))
        await publish(api, MODEL, ports, running)
        session = await stack.enter_async_context(aiohttp.ClientSession(running.url))
        print(HEADER)
        for name in given.workloads:
            shape = Shape(
                given.engines,
                given.cache_tokens,
                1.0,
                given.requests,
                answer_tokens=16,
                bytes_per_token=BYTES_PER_TOKEN,
                think_s=0.2,
            )
            sessions = WORKLOADS[name](random.Random(given.seed), shape)
            await api.put(inference_model(MODEL, routing={"policy": "RoundRobin"}))
            await forget(session, admin)
            busy = await replay(session, sessions, given.clients)
            print(f"{name}: engines end {busy.rate:.1f} requests/s of round robin", flush=True)
            rate = PAST * busy.rate
            sessions = [replace(one, starts_s=one.starts_s / rate) for one in sessions]
            costs = replace(CPU, prefill_rate=busy.prefill_rate / given.engines)
            runs, share = dict[str, Run](), 0.0
            for policy, rival in (("PrefixAffinity", "placed"), ("RoundRobin", "round robin")):
                await api.put(inference_model(MODEL, routing={"policy": policy}))
                await forget(session, admin)
                run = runs[rival] = await replay(session, sessions)
                expected, engines = forecast(sessions, rival, costs, given)
                print(told(name, rival, run, expected, engines), flush=True)
                if rival == "placed":
                    share = share_of(run, expected)
            judge(goals, name, runs, share, given.engines)
    return 1 if goals.missed and given.check else 0


def _parse(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--engines", type=int, default=4)
    parser.add_argument("--cache-tokens", type=int, default=8192, help="of each engine")
    parser.add_argument("--requests", type=int, default=240, help="of each trace, about")
    parser.add_argument("--clients", type=int, default=24, help="that keep all busy")
    parser.add_argument("--width", type=int, default=WIDTH, help="of the model's MLPs")
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--workloads", nargs="+", default=list(WORKLOADS), choices=WORKLOADS)
    parser.add_argument("--check", action="store_true", help="exit with 1 where a goal is missed")
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(asyncio.run(main(_parse(sys.argv[1:]))))
