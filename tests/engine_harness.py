"""Small factories for engine tests: schedulers, requests, an in-memory port, an isolated run."""

import math
from collections.abc import Iterable, Sequence

from yaie.core.kv_spec import KVSpec, LayerGroup
from yaie.core.messages import Command, Event, Generate, Tokens
from yaie.core.request import SamplingParams
from yaie.core.scheduler import Scheduler
from yaie.runtime.budget import StepBudget
from yaie.runtime.loop import EngineLoop
from yaie.runtime.stub import Predict, StubRunner, hashed

VOCAB = 50
PAGE = 4


def make_spec(*, page_size: int = PAGE, groups: int = 1) -> KVSpec:
    group = LayerGroup(kind="full", layers=(0,), bytes_per_token=1)
    return KVSpec(groups=(group,) * groups, page_size=page_size)


def make_scheduler(*, num_pages: int = 64, page_size: int = PAGE, groups: int = 1, **options):
    options = {"max_num_seqs": 8, "max_model_len": 128, "vocab_size": VOCAB, "seed": 0} | options
    return Scheduler(make_spec(page_size=page_size, groups=groups), num_pages, **options)


def generate(
    request_id: str, prompt: Iterable[int], *, priority: int = 0, salt: str = "", **sampling
) -> Generate:
    params = SamplingParams(**({"temperature": 0.0, "max_tokens": 8} | sampling))
    return Generate(request_id, tuple(prompt), params, priority, salt)


class MemoryPort:
    """Commands to deliver on the next drain, and every event published so far."""

    def __init__(self) -> None:
        self.inbox: list[Command] = []
        self.events: list[Event] = []
        self.waits: list[float] = []

    def drain(self, *, wait_s: float) -> list[Command]:
        self.waits.append(wait_s)
        commands, self.inbox = self.inbox, []
        return commands

    def publish(self, events: list[Event]) -> None:
        self.events.extend(events)

    def of(self, kind: type) -> list:
        return [event for event in self.events if isinstance(event, kind)]

    def tokens(self, request_id: str) -> list[int]:
        return [
            token
            for event in self.of(Tokens)
            if event.request_id == request_id
            for token in event.token_ids
        ]

    def finish(self, request_id: str) -> Tokens | None:
        ends = [
            event
            for event in self.of(Tokens)
            if event.request_id == request_id and event.finish_reason
        ]
        assert len(ends) <= 1, f"{request_id} ended {len(ends)} times"
        return ends[0] if ends else None


class Rig:
    """A loop over a stub runner, with a clock that tests move."""

    def __init__(
        self,
        *,
        depth: int = 0,
        predict: Predict | None = None,
        budget: int = 32,
        runner: StubRunner | None = None,
        page_size: int = PAGE,
        **options,
    ) -> None:
        self.now = 100.0
        self.port = MemoryPort()
        self.scheduler = make_scheduler(page_size=page_size, **options)
        self.runner = runner or StubRunner(
            predict or hashed(VOCAB), page_size=page_size, depth=depth, sleep=self.sleep
        )
        self.loop = EngineLoop(
            self.scheduler,
            self.runner,
            self.port,
            budget=StepBudget(budget, math.inf),
            clock=lambda: self.now,
        )

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def send(self, *commands: Command) -> None:
        self.port.inbox.extend(commands)

    def run(self, *commands: Command, max_steps: int = 2000) -> None:
        """Step until idle, proving the invariants after each step."""
        self.send(*commands)
        for _ in range(max_steps):
            self.loop.step()
            self.scheduler.check()
            if self.loop.is_idle and not self.port.inbox:
                return
        raise AssertionError(f"not idle after {max_steps} steps")


def isolated_tokens(request: Generate, predict: Predict, eos: Sequence[int] = ()) -> list[int]:
    """What a request generates when it is alone in a roomy engine without a cache."""
    rig = Rig(
        predict=predict,
        num_pages=256,
        budget=1024,
        enable_prefix_caching=False,
        eos_token_ids=tuple(eos),
    )
    rig.run(request)
    return rig.port.tokens(request.request_id)
