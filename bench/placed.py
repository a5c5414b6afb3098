"""Replays traces on real engines on the CPU, and says how far the simulator was off.

    PYTHONPATH=tests python bench/placed.py [--engines 4] [--requests 120] [--clients 6] [--check]

Starts a router and engines of the built-in model with small caches, on loopback, and sends the
traces of `bench/replay.py` in small, with the model's policy and round robin in turn. Hits are what
the engines say in `usage`. `explained`: how many choices of the policy come out the same when made
again from `x-yaie-route`. `--check` exits with 1 where the policy misses a goal.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp
from routing.engine import Costs
from routing.requests import begin
from routing.rivals import RIVALS
from routing.traces import WORKLOADS, Session, Shape
from routing.world import World

from router.conftest import free_port
from router.explained import chosen_again
from router.fakes import FakeApi, inference_model
from router.faults.matrix import answered, process, publish, router

MODEL: Final = "yaie-demo"
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
    """The requests of one trace under one policy."""

    seen: list[Seen] = field(default_factory=list)

    @property
    def hits(self) -> float:
        return sum(one.cached for one in self.seen) / sum(one.tokens for one in self.seen)

    @property
    def counts(self) -> Counter[str]:
        return Counter(one.engine for one in self.seen)

    def balance(self, engines: int) -> float:
        return max(self.counts.values()) / (len(self.seen) / engines)


async def replay(session: aiohttp.ClientSession, sessions: Sequence[Session], clients: int) -> Run:
    """Send all sessions, so many at a time."""
    run, waiting = Run(), list(reversed(sessions))

    async def client() -> None:
        while waiting:
            await converse(session, waiting.pop(), run)

    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(client())
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
        answer.raise_for_status()
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


def forecast(sessions: Sequence[Session], rival: str, given: argparse.Namespace) -> Any:
    """What the simulator says of the same trace."""
    world = World(
        sessions,
        CPU,
        engines=given.engines,
        cache_tokens=given.cache_tokens,
        make=RIVALS[rival],
        clients=given.clients,
    )
    return world.run(), world.names


async def main(given: argparse.Namespace) -> int:
    """Measure, print, and return the exit status."""
    os.environ["YAIE_PREFIX_KEY"] = os.urandom(16).hex()
    missed = 0
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ports = [free_port() for _ in range(given.engines)]
        admin = [free_port() for _ in range(given.engines)]
        for port, control in zip(ports, admin, strict=True):
            flags = ("--port", port, "--admin-port", control, "--cpu-threads", 1)
            size = ("--kv-cache-tokens", given.cache_tokens, "--max-num-seqs", 16)
            words = ("-m", "yaie", "serve", "builtin://yaie-demo", *flags, *size)
            await stack.enter_async_context(process(*map(str, words)))
        for port in ports:
            await answered(f"http://127.0.0.1:{port}/readyz")
        api = FakeApi(folder / "api.sock")
        await api.start()
        stack.push_async_callback(api.stop)
        running = await stack.enter_async_context(router(api))
        await publish(api, MODEL, ports, running)
        session = await stack.enter_async_context(aiohttp.ClientSession(running.url))
        print(HEADER)
        for name in given.workloads:
            shape = Shape(
                given.engines,
                given.cache_tokens,
                1000.0,
                given.requests,
                answer_tokens=16,
                bytes_per_token=BYTES_PER_TOKEN,
                think_s=0.2,
            )
            sessions = WORKLOADS[name](random.Random(given.seed), shape)
            for policy, rival in (("PrefixAffinity", "placed"), ("RoundRobin", "round robin")):
                if given.only and policy != given.only:
                    continue
                await api.put(inference_model(MODEL, routing={"policy": policy}))
                for control in admin:
                    async with session.post(
                        f"http://127.0.0.1:{control}/reset_prefix_cache"
                    ) as answer:
                        answer.raise_for_status()
                await asyncio.sleep(1.0)
                run = await replay(session, sessions, given.clients)
                told, names = forecast(sessions, rival, given)
                hits, oracle = told.cached / told.prompt, told.oracle / told.prompt
                balance = run.balance(given.engines)
                ttft = sorted(one.ttft_s for one in run.seen)
                cells = (
                    name,
                    rival,
                    len(run.seen),
                    f"{run.hits:.3f}",
                    f"{hits:.3f}",
                    f"{run.hits - hits:+.3f}",
                    f"{run.hits / oracle:.3f}",
                    f"{balance:.2f}",
                    f"{told.balance(names, lambda _: 1):.2f}",
                    f"{1000 * ttft[len(ttft) // 2]:.0f}",
                    sum(one.is_explained for one in run.seen),
                    dict(sorted(Counter(one.outcome for one in run.seen).items())),
                    [run.counts[f"pod-{i}"] for i in range(given.engines)],
                )
                print("|", " | ".join(map(str, cells)), "|", flush=True)
                if rival == "placed" and (
                    run.hits < 0.9 * oracle
                    or balance > 1.25
                    or not all(one.is_explained for one in run.seen)
                ):
                    missed += 1
    return 1 if missed and given.check else 0


HEADER: Final = """\
| trace | policy | requests | hits | forecast | error | of the oracle | max/mean requests \
| forecast | TTFT p50 ms | explained | outcomes | requests by engine |
|---|---|---|---|---|---|---|---|---|---|---|---|---|"""


def _parse(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--engines", type=int, default=4)
    parser.add_argument("--cache-tokens", type=int, default=8192, help="of each engine")
    parser.add_argument("--requests", type=int, default=160, help="of each trace, about")
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--workloads", nargs="+", default=list(WORKLOADS), choices=WORKLOADS)
    parser.add_argument("--only", choices=["PrefixAffinity", "RoundRobin"])
    parser.add_argument("--check", action="store_true", help="exit with 1 where a goal is missed")
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(asyncio.run(main(_parse(sys.argv[1:]))))
