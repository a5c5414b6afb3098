"""The same gate through the real scheduler: chunks, mixed steps, prefix hits, preemption."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
import torch

from engine.models.oracle import Reference, assert_within_gate, reference, save
from yaie.config import EngineConfig
from yaie.core.batch import Batch, StepResult
from yaie.core.messages import Command, Event, Generate, Tokens
from yaie.core.request import SamplingParams
from yaie.runtime import factory
from yaie.runtime.budget import StepBudget
from yaie.runtime.loop import EngineLoop, TokenMasks
from yaie.runtime.runner import ModelRunner, Ticket

VARIANTS = ("llama-gqa", "qwen3-tied-bias-odd-vocab")
GREEDY = SamplingParams(temperature=0.0, max_tokens=64, ignore_eos=True)


class Recorder:
    """A runner that keeps the logits of every sampled row, by sequence and position."""

    def __init__(self, inner: ModelRunner) -> None:
        self.inner = inner
        self.depth = inner.depth
        self.logits: dict[int, dict[int, torch.Tensor]] = {}
        self.mixed_steps = 0

    def launch(self, batch: Batch) -> Ticket:
        ticket = self.inner.launch(batch)
        rows = [row for row in batch.rows if row.sample]
        self.mixed_steps += len({bool(row.tokens) for row in batch.rows}) == 2
        if ticket.logits is not None:
            for row, logits in zip(rows, ticket.logits, strict=True):
                of_sequence = self.logits.setdefault(row.seq_id, {})
                of_sequence[row.start + row.n_tokens] = logits.clone()
        return ticket

    def sample(self, ticket: Ticket, masks: TokenMasks | None = None) -> None:
        self.inner.sample(ticket, masks)

    def collect(self, ticket: Ticket) -> StepResult:
        return self.inner.collect(ticket)


class Harness:
    """An engine over a folder, driven step by step; it is its own port."""

    def __init__(self, folder: Path, *, step_tokens: int, kv_cache_tokens: int) -> None:
        engine = factory.create(
            EngineConfig(
                model=str(folder),
                device="cpu",
                cpu_threads=1,
                max_num_batched_tokens=step_tokens,
                kv_cache_tokens=kv_cache_tokens,
                max_num_seqs=8,
            )
        )
        self.scheduler = engine.scheduler
        self.recorder = Recorder(engine.runner)
        budget = StepBudget(step_tokens, float("inf"))
        self.loop = EngineLoop(engine.scheduler, self.recorder, self, budget=budget)
        self.inbox: list[Command] = []
        self.tokens: dict[str, list[int]] = {}
        self.cached: dict[str, int] = {}
        self._ids = count()

    def drain(self, *, wait_s: float) -> list[Command]:
        commands, self.inbox = self.inbox, []
        return commands

    def publish(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, Tokens):
                self.tokens.setdefault(event.request_id, []).extend(event.token_ids)
                self.cached[event.request_id] = event.cached_tokens

    def add(self, expected: Reference) -> int:
        number = next(self._ids)
        self.inbox.append(Generate(str(number), expected.prompt, GREEDY))
        return number

    def run(self, expected: list[Reference]) -> None:
        """Run all of them together and judge each."""
        numbers = [self.add(one) for one in expected]
        self.finish()
        for number, one in zip(numbers, expected, strict=True):
            self.check(number, one)

    def finish(self) -> None:
        while self.inbox or not self.loop.is_idle:
            self.loop.step()

    def check(self, number: int, expected: Reference) -> None:
        assert tuple(self.tokens[str(number)]) == expected.greedy
        assert_within_gate(self.recorder.logits[number], expected, label=f"sequence {number}")


@pytest.fixture(scope="module", params=VARIANTS)
def variant(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def folder(variant: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    return save(variant, tmp_path_factory.mktemp(variant))


def test_prompts_in_chunks_beside_decodes_match(variant: str, folder: Path) -> None:
    harness = Harness(folder, step_tokens=12, kv_cache_tokens=1024)
    harness.run([reference(variant, length) for length in (16, 37, 1)])
    assert harness.recorder.mixed_steps >= 2


def test_a_prefix_hit_matches(variant: str, folder: Path) -> None:
    harness = Harness(folder, step_tokens=64, kv_cache_tokens=1024)
    first, second = (reference(variant, 37, seed=seed, shared=33) for seed in (1, 2))
    harness.run([first])
    number = harness.add(second)
    harness.finish()
    assert harness.cached[str(number)] == 32
    harness.check(number, second)


def test_preempted_sequences_match(variant: str, folder: Path) -> None:
    """Three sequences grow to 80..101 tokens in a cache of 192: some must start over."""
    harness = Harness(folder, step_tokens=64, kv_cache_tokens=192)
    harness.run([reference(variant, length) for length in (16, 37, 30)])
    assert harness.scheduler.stats().preemptions > 0
