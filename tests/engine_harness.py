"""Small factories for engine tests: schedulers, requests, an in-memory port, an isolated run."""

import math
from collections.abc import Iterable, Sequence
from typing import Any, cast

import numpy as np

from fakes.stub_runner import Predict, StubRunner, hashed, next_allowed
from yaie.core.batch import Batch, SlotInit, StepResult
from yaie.core.kv_cache.spec import KVCacheGroup, KVSpec
from yaie.core.matcher import Matcher
from yaie.core.messages import (
    Accepted,
    Command,
    Event,
    FinishReason,
    Generate,
    Pooling,
    Rejected,
    Tokens,
)
from yaie.core.request import SamplingParams
from yaie.core.scheduler.scheduler import Scheduler
from yaie.runtime.grammar.pending import GrammarBackend, TokenMasks
from yaie.runtime.loop.engine_loop import EngineLoop
from yaie.runtime.loop.step_budget import StepBudget, StepLimits
from yaie_api.errors import InvalidRequestError, YaieError

VOCAB = 50
PAGE = 4


def make_spec(*, page_size: int = PAGE, groups: int = 1) -> KVSpec:
    group = KVCacheGroup(kind="full", layers=(0,), bytes_per_token=1)
    return KVSpec(groups=(group,) * groups, page_size=page_size)


def make_scheduler(
    *, num_pages: int = 64, page_size: int = PAGE, groups: int = 1, **options: Any
) -> Scheduler:
    options = {"max_num_seqs": 8, "max_model_len": 128, "vocab_size": VOCAB, "seed": 0} | options
    return Scheduler(make_spec(page_size=page_size, groups=groups), num_pages, **options)


def generate(
    request_id: str,
    prompt: Iterable[int],
    *,
    priority: int = 0,
    salt: str = "",
    tenant: str = "",
    timeout_s: float | None = None,
    pooling: Pooling | None = None,
    **sampling: Any,
) -> Generate:
    params = SamplingParams(**({"temperature": 0.0, "max_tokens": 8} | sampling))
    return Generate(request_id, tuple(prompt), params, priority, salt, tenant, timeout_s, pooling)


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

    def messages(self, request_id: str, index: int = 0) -> list[Tokens]:
        """What an output was told, in order."""
        of_output = (request_id, index)
        return [e for e in self.of(Tokens) if (e.request_id, e.index) == of_output]

    def tokens(self, request_id: str, index: int = 0) -> list[int]:
        messages = self.messages(request_id, index)
        return [token for message in messages for token in message.token_ids]

    def finish(self, request_id: str, index: int = 0) -> Tokens:
        """The final message of an output: there must be one, and it must be the last."""
        messages = self.messages(request_id, index)
        ends = [message for message in messages if message.finish_reason]
        assert len(ends) == 1, f"{request_id} ended {len(ends)} times"
        assert messages[-1] is ends[0], f"{request_id} got tokens after its end"
        return ends[0]


class ParityMatcher:
    """A made-up grammar that depends on all it has seen: token and last token differ in parity, or
    agree, in turn. Complete after as many tokens as the grammar's text says.
    """

    def __init__(self, length: int, seen: tuple[int, ...] = ()) -> None:
        self.length = length
        self.seen = seen

    @classmethod
    def of(cls, request: Generate) -> "ParityMatcher | None":
        grammar = request.sampling.grammar
        return None if grammar is None else cls(int(grammar.text))

    def allows(self, token_id: int) -> bool:
        return (token_id + sum(self.seen) + len(self.seen)) % 2 == 0

    def consume(self, token_id: int) -> bool:
        allowed = self.allows(token_id) and not self.is_finished
        self.seen = (*self.seen, token_id)
        return allowed

    @property
    def is_finished(self) -> bool:
        return len(self.seen) >= self.length

    @property
    def words(self) -> list[int]:
        bits = sum(1 << token for token in range(VOCAB) if self.allows(token))
        return [bits >> (32 * word) & 0xFFFFFFFF for word in range(-(-VOCAB // 32))]

    def fork(self) -> "ParityMatcher":
        return ParityMatcher(self.length, self.seen)


class Guesser:
    """Guesses up to `most` tokens: what the made-up model says to greedy requests, but for every
    `wrong`-th guess. `n_guesses`: made so far.
    """

    def __init__(self, most: int, *, wrong: int = 3) -> None:
        self.most = most
        self.wrong = wrong
        self.n_guesses = 0
        self._predict = hashed(VOCAB)
        self._init = SlotInit(0, 0, SamplingParams(temperature=0.0), 0, ())

    def draft(self, tokens: Sequence[int], most: int) -> list[int]:
        assert most > 0
        context = list(tokens)
        for _ in range(min(most, self.most)):
            self.n_guesses += 1
            off = 1 if self.n_guesses % self.wrong == 0 else 0
            context.append((self._predict(context, self._init) + off) % VOCAB)
        return context[len(tokens) :]


class FakeGrammars:
    """Compiles `ParityMatcher`s; each takes `delay` calls of `take`. A text that is no number is
    refused.
    """

    def __init__(self, delay: int = 0) -> None:
        self.delay = delay
        self.compiling: list[tuple[int, Generate]] = []

    def submit(self, request: Generate) -> None:
        self.compiling.append((self.delay, request))

    def take(self) -> list[tuple[Generate, Matcher | YaieError]]:
        ready = [request for left, request in self.compiling if left <= 0]
        self.compiling = [(left - 1, request) for left, request in self.compiling if left > 0]
        return [(request, self.compile(request)) for request in ready]

    def compile(self, request: Generate) -> Matcher | YaieError:
        try:
            matcher = ParityMatcher.of(request)
        except ValueError:
            return InvalidRequestError("no such grammar", param="structured_outputs")
        assert matcher is not None
        return matcher

    def masks(self, rows: Sequence[tuple[int, Matcher]]) -> TokenMasks | None:
        matchers = [cast(ParityMatcher, matcher) for _, matcher in rows]
        words = np.array([matcher.words for matcher in matchers], dtype=np.uint32)
        return TokenMasks(tuple(number for number, _ in rows), words.view(np.int32))


class Rig:
    """A loop over a stub runner, with a clock that tests move."""

    def __init__(
        self,
        *,
        depth: int = 0,
        predict: Predict | None = None,
        budget: int | StepBudget = 32,
        runner: StubRunner | None = None,
        page_size: int = PAGE,
        grammars: GrammarBackend | None = None,
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
            budget=StepBudget(StepLimits(budget, math.inf)) if isinstance(budget, int) else budget,
            grammars=grammars,
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
    request: Generate, *, index: int = 0, eos: Iterable[int] = (), limit: int = 128
) -> tuple[list[int], FinishReason]:
    """What an output generates on its own: the made-up model in a plain loop, no engine at all."""
    sampling, eos = request.sampling, set(eos)
    stops = set(sampling.stop_token_ids) | (set() if sampling.ignore_eos else eos)
    init = SlotInit(0, 0, sampling, (sampling.seed or 0) + index, ())
    matcher = ParityMatcher.of(request)
    predict = hashed(VOCAB)
    context = list(request.prompt_token_ids)
    output: list[int] = []
    while len(output) != sampling.max_tokens and len(context) < limit:
        token = predict(context, init)
        if matcher is not None:
            token = next_allowed(token, matcher.words)
            matcher.consume(token)
        context.append(token)
        output.append(token)
        if token in stops and len(output) >= sampling.min_tokens:
            return output, "stop"
        if matcher is not None and matcher.is_finished:
            return output, "stop"
    return output, "length"


# -- a scheduler by hand, without a runner ----------------------------------------------------


def schedule(scheduler: Scheduler, budget: int = 32, *, now: float = 0.0) -> Batch:
    batch = scheduler.schedule(now, budget)
    assert batch is not None
    scheduler.check()
    return batch


def commit(
    scheduler: Scheduler,
    batch: Batch,
    token: int = 7,
    *,
    bad: tuple[int, ...] = (),
    now: float = 0.0,
    **extras: Any,
) -> list[Tokens]:
    tokens = tuple(token if row.sample else -1 for row in batch.rows)
    finite = tuple(index not in bad for index in range(len(batch.rows)))
    events = scheduler.commit(StepResult(batch.step_id, tokens, finite, **extras), now)
    scheduler.check()
    return events


def step(scheduler: Scheduler, budget: int = 32, token: int = 7) -> list[Tokens]:
    return commit(scheduler, schedule(scheduler, budget), token)


def add(scheduler: Scheduler, *args: Any, **options: Any) -> None:
    assert isinstance(scheduler.add(generate(*args, **options)), Accepted)


def refuse(scheduler: Scheduler, *args: Any, **options: Any) -> Rejected:
    answer = scheduler.add(generate(*args, **options))
    assert isinstance(answer, Rejected)
    return answer


def rows(batch: Batch) -> list[tuple[int, int, int, bool]]:
    """(sequence, first position, tokens, samples) of each row."""
    return [(row.seq_id, row.start, row.n_tokens, row.sample) for row in batch.rows]
