"""Replays traces over simulated engines, with the policy that routers use and with others.

    python bench/replay.py [--engines 8] [--rate 5] [--requests 2500] [--seeds 101 102] [--check]
    python bench/replay.py --file sessions.jsonl [--engines 8]

Imports the router's own policy. Engines are simulated: a queue, steps of a token budget, a cache of
pages, and the lines that they publish every 100 ms. The oracle is one cache of all engines' size.
`--check` exits with 1 where a goal is missed. Its seeds are others than those that the policy was
tuned with (1 to 11).
"""

import argparse
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from routing.engine import GPU
from routing.requests import Request
from routing.rivals import RIVALS
from routing.traces import WORKLOADS, Session, Shape, recorded
from routing.world import Outcome, World

HITS: Final = 0.9
BALANCE: Final = 1.25
SPILLS: Final = 0.02
AGREEMENT: Final = 0.98
FEW: Final = 0.5
"""Requests a second for each engine, so few that nobody queues."""
NO_SLOWER: Final = 0.95
FASTER: Final = 5.0
THINK_S: Final = 8.0
HEADER: Final = """\
| trace | policy | engines | load | requests | hits | of the oracle | max/mean requests \
| max/mean work | TTFT p50 ms | p99 | away from the match | agreed |
|---|---|---|---|---|---|---|---|---|---|---|---|---|"""


@dataclass(frozen=True)
class Knee:
    """A load past the knee of round robin: more comes than its engines end, so queues grow for as
    long as it lasts. `rate`: requests a second for each engine. Conversations need many requests
    for that: their rate is reached when thousands of sessions have begun.
    """

    rate: float
    requests: int = 2500
    think_s: float = THINK_S


KNEES: Final = {
    "conversations": Knee(11.0, 30_000, think_s=0.5),
    "documents": Knee(7.0),
    "tenants": Knee(12.0),
}


def work(one: Request) -> float:
    """Tokens that an engine had to compute for a request."""
    return one.tokens - one.cached + one.answer_tokens


def run(
    trace: str,
    rival: str,
    seed: int,
    *,
    engines: int,
    rate: float,
    requests: int,
    cache_tokens: int = 65_536,
    clients: int | None = None,
    routers: int = 1,
    think_s: float = THINK_S,
    sessions: Sequence[Session] = (),
) -> Outcome:
    """Replay one trace and print its row. `rate`: requests per second for each engine. `think_s`:
    between the turns of a conversation, where sessions come by themselves. `sessions`: recorded
    ones, in the place of a generated trace.
    """
    shape = Shape(
        engines,
        cache_tokens,
        rate * engines,
        requests,
        answer_tokens=120,
        think_s=think_s if clients is None else 0.5,
    )
    sessions = sessions or WORKLOADS[trace](random.Random(seed), shape)
    world = World(
        sessions,
        GPU,
        engines=engines,
        cache_tokens=cache_tokens,
        make=RIVALS[rival],
        clients=clients,
        routers=routers,
    )
    found = world.run()
    load = f"{rate * engines:g}/s" if clients is None else f"{clients} clients"
    cells = (
        trace,
        rival if routers == 1 else f"{rival}, {routers} routers",
        engines,
        load,
        len(found.requests),
        f"{found.cached / found.prompt:.3f}",
        f"{found.share:.3f}",
        f"{found.balance(world.names, lambda _: 1):.2f}",
        f"{found.balance(world.names, work):.2f}",
        f"{1000 * found.ttft(0.5):.0f}",
        f"{1000 * found.ttft(0.99):.0f}",
        f"{found.spilled:.3f}",
        f"{found.agreed / found.asked:.3f}" if found.asked else "",
    )
    print("|", " | ".join(map(str, cells)), "|", flush=True)
    found.max_mean = found.balance(world.names, lambda _: 1)
    return found


class Goals:
    """What was found beside what was wanted."""

    def __init__(self) -> None:
        self.missed = 0

    def judge(self, what: str, found: float, goal: float, *, at_least: bool) -> None:
        """Compare one figure with its goal, and print both."""
        is_missed = (found < goal) if at_least else (found > goal)
        self.missed += is_missed
        bound = "at least" if at_least else "at most"
        print("missed:" if is_missed else "held:", f"{what}: {found:.3f}, {bound} {goal:g}")

    def both(self, what: str, found: Outcome) -> None:
        """Hits and balance."""
        self.judge(f"{what}, hits of the oracle's", found.share, HITS, at_least=True)
        self.judge(f"{what}, max/mean", found.max_mean, BALANCE, at_least=False)


def main(given: argparse.Namespace) -> int:
    """Replay all, print, and return the exit status."""
    goals = Goals()
    print(HEADER)
    if given.file is not None:
        return _recorded(given, goals)
    for seed in given.seeds:
        for trace in given.traces:
            common = {"engines": given.engines, "rate": given.rate, "requests": given.requests}
            for rival in given.policies:
                found = run(trace, rival, seed, **common)
                if rival == "placed":
                    goals.both(f"{trace} (seed {seed})", found)
            two = run(trace, "placed", seed, **common, routers=2)
            goals.both(f"{trace} (seed {seed}), two routers", two)
            agreed = two.agreed / max(1, two.asked)
            goals.judge(f"{trace} (seed {seed}), agreement", agreed, AGREEMENT, at_least=True)
            wide = run(trace, "placed", seed, **common | {"engines": 2 * given.engines})
            goals.both(f"{trace} (seed {seed}), {2 * given.engines} engines", wide)
    for trace in given.traces:
        for engines, clients in ((4, 1), (4, 16), (8, 1), (8, 4), (8, 16)):
            few = run(
                trace,
                "placed",
                given.seeds[0],
                engines=engines,
                rate=1.0,
                requests=given.requests // 2,
                clients=clients,
            )
            what = f"{trace}, {clients} clients of {engines} engines"
            goals.judge(f"{what}, away from the match", few.spilled, SPILLS, at_least=False)
    for trace in given.traces:
        _beside_round_robin(trace, given, goals)
    return 1 if goals.missed and given.check else 0


def _recorded(given: argparse.Namespace, goals: Goals) -> int:
    """Replay a file's sessions under each policy."""
    sessions = recorded(given.file)
    turns = sum(len(session.turns) for session in sessions)
    last_s = max(1.0, *(session.starts_s for session in sessions))
    rate = turns / last_s / given.engines
    for rival in given.policies:
        found = run(
            given.file.name,
            rival,
            0,
            engines=given.engines,
            rate=round(rate, 3),
            requests=turns,
            sessions=sessions,
        )
        if rival == "placed":
            goals.both(given.file.name, found)
    return 1 if goals.missed and given.check else 0


def _beside_round_robin(trace: str, given: argparse.Namespace, goals: Goals) -> None:
    """With few requests no slower, and past round robin's knee much faster."""

    def medians_s(load: Knee, what: str) -> tuple[float, float]:
        placed, other = (
            run(
                trace,
                rival,
                given.seeds[0],
                engines=16,
                rate=load.rate,
                requests=load.requests,
                think_s=load.think_s,
            )
            for rival in ("placed", "round robin")
        )
        goals.both(what, placed)
        return placed.ttft(0.5), other.ttft(0.5)

    knee = KNEES[trace]
    for load, goal in ((Knee(FEW, given.requests), NO_SLOWER), (knee, FASTER)):
        what = f"{trace}, 16 engines at {load.rate:g}/s each"
        placed_s, other_s = medians_s(load, what)
        what = f"{what}, times faster than round robin"
        goals.judge(what, other_s / placed_s, goal, at_least=True)


def _parse(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--engines", type=int, default=8)
    parser.add_argument("--rate", type=float, default=5.0, help="requests a second, each engine")
    parser.add_argument("--requests", type=int, default=2500, help="of each trace, about")
    parser.add_argument("--seeds", type=int, nargs="+", default=[101, 102])
    parser.add_argument("--traces", nargs="+", default=list(WORKLOADS), choices=WORKLOADS)
    parser.add_argument(
        "--file", type=Path, help="recorded sessions, a line of JSON each (routing.traces.Session)"
    )
    parser.add_argument("--policies", nargs="+", default=list(RIVALS), choices=RIVALS)
    parser.add_argument("--check", action="store_true", help="exit with 1 where a goal is missed")
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main(_parse(sys.argv[1:])))
