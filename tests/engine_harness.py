"""Small factories for engine tests: schedulers, requests, an in-memory port, an isolated run."""

import math
from collections.abc import Iterable
from typing import Any

from yaie.core.batch import SlotInit
from yaie.core.kv_spec import KVSpec, LayerGroup
from yaie.core.messages import Command, Event, FinishReason, Generate, Tokens
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


def make_scheduler(
    *, num_pages: int = 64, page_size: int = PAGE, groups: int = 1, **options: Any
) -> Scheduler:
    options = {"max_num_seqs": 8, "max_model_len": 128, "vocab_size": VOCAB, "seed": 0} | options
    return Scheduler(make_spec(page_size=page_size, groups=groups), num_pages, **options)


def generate(
    request_id: str, prompt: Iterable[int], *, priority: int = 0, salt: str = "", **sampling: Any
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

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def tokens(self, request_id: str) -> list[int]:
        messages = [event for event in self.of(Tokens) if event.request_id == request_id]
        return [token for message in messages for token in message.token_ids]

    def finish(self, request_id: str) -> Tokens:
        """The final message of a request: there must be one, and it must be the last."""
        messages = [event for event in self.of(Tokens) if event.request_id == request_id]
        ends = [message for message in messages if message.finish_reason]
        assert len(ends) == 1, f"{request_id} ended {len(ends)} times"
        assert messages[-1] is ends[0], f"{request_id} got tokens after its end"
        return ends[0]


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
        **options: Any,
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

    def step(self) -> bool:
        """One step; the invariants are proved after it."""
        worked = self.loop.step()
        self.scheduler.check()
        return worked

    def run(self, *commands: Command, max_steps: int = 2000) -> None:
        """Step until idle."""
        self.send(*commands)
        for _ in range(max_steps):
            self.step()
            if self.loop.is_idle and not self.port.inbox:
                return
        raise AssertionError(f"not idle after {max_steps} steps")


def isolated(
    request: Generate, *, eos: Iterable[int] = (), limit: int = 128
) -> tuple[list[int], FinishReason]:
    """What a request generates on its own: the made-up model in a plain loop, no engine at all."""
    sampling, eos = request.sampling, set(eos)
    stops = set(sampling.stop_token_ids) | (set() if sampling.ignore_eos else eos)
    init = SlotInit(0, 0, sampling, sampling.seed or 0, ())
    predict = hashed(VOCAB)
    context = list(request.prompt_token_ids)
    output: list[int] = []
    while True:
        token = predict(context, init)
        context.append(token)
        output.append(token)
        if token in stops and len(output) >= sampling.min_tokens:
            return output, "stop"
        if len(output) == sampling.max_tokens or len(context) == limit:
            return output, "length"
