"""The real loop, scheduler and budget on a virtual clock, with a made-up machine.

    machine = Machine(decode_s=1.2e-3, mixed_s=8e-3, token_s=3.3e-6)
    report = serve(machine, poisson(20, seconds=10))
    report.ttft_s, report.gaps_s

Nothing sleeps: a step ends when its machine says so, and idle time is skipped.
"""

import math
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from engine_harness import generate, make_scheduler
from yaie.core.batch import Batch, StepResult
from yaie.core.messages import Command, Event, Generate, Rejected, Tokens
from yaie.runtime.grammar.pending import TokenMasks
from yaie.runtime.loop.engine_loop import EngineLoop
from yaie.runtime.loop.step_budget import StepBudget, StepLimits
from yaie.runtime.loop.step_cost import StepShape

PAGE = 16


@dataclass(frozen=True)
class Machine:
    """Seconds of a step of decodes alone, of one with prefill without its tokens, and of a token.

    `row_s`: for each decode row. `context_s`: for each token and position before it.
    """

    decode_s: float
    mixed_s: float
    token_s: float
    row_s: float = 0.0
    context_s: float = 0.0
    depth: int = 1

    def seconds(self, load: StepShape) -> float:
        rows_s = self.row_s * load.decodes
        if not load.prefill_tokens:
            return self.decode_s + rows_s
        prefill_s = self.token_s * load.prefill_tokens + self.context_s * load.context
        return self.mixed_s + rows_s + prefill_s


class Arrival(NamedTuple):
    at_s: float
    n_prompt: int
    n_output: int


@dataclass
class Report:
    """What clients saw, in seconds. `ttft_s` in order of arrival; `load` of each step."""

    arrivals: list[Arrival]
    first_s: dict[int, float] = field(default_factory=dict)
    tokens_s: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    ended: set[int] = field(default_factory=set)
    refused: int = 0
    steps: list[tuple[StepShape, float]] = field(default_factory=list)
    steps_past_target: int = 0
    now_s: float = 0.0

    def ttft_s(self, *, after_s: float = 0.0) -> list[float]:
        return [
            self.first_s[number] - arrival.at_s
            for number, arrival in enumerate(self.arrivals)
            if arrival.at_s >= after_s and number in self.first_s
        ]

    @property
    def gaps_s(self) -> list[float]:
        return [b - a for times in self.tokens_s.values() for a, b in pairwise(times)]

    def output_per_s(self, start_s: float, end_s: float) -> float:
        times = [t for times in self.tokens_s.values() for t in times if start_s <= t < end_s]
        return len(times) / (end_s - start_s)


def poisson(
    per_s: float,
    *,
    seconds: float,
    n_prompt: tuple[int, int] = (200, 800),
    n_output: tuple[int, int] = (100, 300),
    seed: int = 5,
) -> list[Arrival]:
    """Open-loop arrivals: nobody waits for anybody's answer."""
    return list(_poisson(per_s, seconds, n_prompt, n_output, random.Random(seed)))


def _poisson(
    per_s: float,
    seconds: float,
    n_prompt: tuple[int, int],
    n_output: tuple[int, int],
    rng: random.Random,
) -> Iterator[Arrival]:
    at_s = rng.expovariate(per_s)
    while at_s < seconds:
        yield Arrival(at_s, rng.randint(*n_prompt), rng.randint(*n_output))
        at_s += rng.expovariate(per_s)


def percentile(values: Iterable[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class _StepHandle(NamedTuple):
    batch: Batch
    done_s: float


class _World:
    """Clock, port and runner in one: they share the time."""

    def __init__(self, machine: Machine, arrivals: Sequence[Arrival], limit_s: float) -> None:
        self.machine = machine
        self.depth = machine.depth
        self.limit_s = limit_s
        self.report = Report(list(arrivals))
        self.now = self._free_s = 0.0
        self._next = 0

    @property
    def is_over(self) -> bool:
        return self.now >= self.limit_s or len(self.report.ended) + self.report.refused == len(
            self.report.arrivals
        )

    # the loop's port

    def drain(self, *, wait_s: float) -> list[Command]:
        arrivals = self.report.arrivals
        if wait_s:
            next_s = arrivals[self._next].at_s if self._next < len(arrivals) else math.inf
            self.now = max(self.now, min(next_s, self.now + wait_s))
        commands: list[Command] = []
        while self._next < len(arrivals) and arrivals[self._next].at_s <= self.now:
            commands.append(self._request(self._next))
            self._next += 1
        return commands

    def _request(self, number: int) -> Generate:
        arrival = self.report.arrivals[number]
        rng = random.Random(number)
        prompt = [rng.randrange(50) for _ in range(arrival.n_prompt)]
        return generate(str(number), prompt, max_tokens=arrival.n_output, ignore_eos=True)

    def publish(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, Rejected):
                self.report.refused += 1
            elif isinstance(event, Tokens):
                self._heard(event)

    def _heard(self, event: Tokens) -> None:
        number = int(event.request_id)
        if event.token_ids:
            self.report.first_s.setdefault(number, self.now)
            self.report.tokens_s[number].append(self.now)
        if event.finish_reason:
            assert event.finish_reason == "length", event
            self.report.ended.add(number)

    # the loop's runner

    def launch(self, batch: Batch) -> _StepHandle:
        load = StepShape.of(batch)
        seconds = self.machine.seconds(load)
        self.report.steps.append((load, seconds))
        self._free_s = max(self.now, self._free_s) + seconds
        return _StepHandle(batch, self._free_s)

    def sample(self, handle: _StepHandle, masks: TokenMasks | None = None) -> None:
        pass

    def is_done(self, handle: _StepHandle) -> bool:
        return self.now >= handle.done_s

    def collect(self, handle: _StepHandle) -> StepResult:
        self.now = max(self.now, handle.done_s)
        rows = handle.batch.rows
        tokens = tuple(1 if row.sample else -1 for row in rows)
        return StepResult(handle.batch.step_id, tokens, (True,) * len(rows))


def serve(
    machine: Machine,
    arrivals: Sequence[Arrival],
    limits: StepLimits,
    *,
    max_num_seqs: int = 256,
    kv_tokens: int = 400_000,
    limit_s: float = 60.0,
) -> Report:
    """Serve `arrivals` until all have ended, or until `limit_s`."""
    world = _World(machine, arrivals, limit_s)
    budget = StepBudget(limits)
    scheduler = make_scheduler(
        num_pages=kv_tokens // PAGE,
        page_size=PAGE,
        max_num_seqs=max_num_seqs,
        max_model_len=32_768,
    )
    loop = EngineLoop(scheduler, world, world, budget=budget, clock=lambda: world.now)
    while not world.is_over:
        loop.step()
    world.report.steps_past_target = budget.steps_past_target
    world.report.now_s = world.now
    return world.report
