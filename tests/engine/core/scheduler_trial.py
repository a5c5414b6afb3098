"""One life of an engine under test: requests and faults by verbs, and the judge of what came out.

The engine double keeps real pages, on the device and in the host: a page used twice, trusted too
early, copied wrongly or freed too soon gives wrong tokens. Whatever happens, every output ends
once, with the tokens of a run on its own.
"""

import contextlib
import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from engine_harness import VOCAB, FakeGrammars, Guesser, ParityMatcher, Rig, generate, isolated
from fakes.stub_runner import StubRunner, _Cell, _hash, _StepHandle, hashed, score, vector
from yaie.core.batch import Batch, Row, StepResult
from yaie.core.messages import Abort, Accepted, Generate, Rejected, ResetPrefixCache, Tokens
from yaie.core.outputs import BROKEN, n_outputs, unstarted
from yaie.core.request import Grammar
from yaie.runtime.grammar.pending import TokenMasks
from yaie.runtime.loop.engine_loop import FatalRunnerError
from yaie.runtime.loop.step_budget import StepBudget, StepLimits

EOS = (3, 17)
LIMIT = 24
STAGES = ("before launch", "swap", "after launch", "sample", "collect")
STEP_S = 0.01
PROBES = ((1,) * 13, (1, 1, 1, 1, 2, 2, 2, 2, 2))
POISON = -3
"""Keys and values that are not finite: no token says this."""


class FaultyRunner(StubRunner):
    """Raises when told to, or computes a row that is not finite. As in a real model that stays in
    the pages, and shows in whoever reads them when something is asked of a row.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(hashed(VOCAB), **options)
        self.fault = ""
        self.error: type[Exception] = RuntimeError
        self.bad_row: int | None = None
        self.is_poisoned = False
        self.finite: dict[int, tuple[bool, ...]] = {}

    def trip(self, stage: str) -> None:
        if self.fault == stage:
            self.fault = ""
            raise self.error(f"out of memory at {stage}")

    def launch(self, batch: Batch) -> _StepHandle:
        self.trip("before launch")
        if batch.swap_out or batch.swap_in or batch.copies:
            self.trip("swap")
        with _own_checks():
            handle = super().launch(batch)
        if self.bad_row is not None:
            self.break_row(batch.rows[self.bad_row % len(batch.rows)])
            self.bad_row = None
        self.trip("after launch")
        return handle

    def break_row(self, row: Row) -> None:
        self.is_poisoned = True
        slot = self._slots[row.slot]
        for group in range(len(slot.tables)):
            trace = self._trace(slot, group, row.start - 1)
            for position in range(row.start, row.start + row.n_tokens):
                trace = _hash((trace, POISON))
                self._store(slot, group, position, _Cell(POISON, trace))

    def sample(self, handle: _StepHandle, masks: TokenMasks | None = None) -> None:
        self.trip("sample")
        with _own_checks():
            super().sample(handle, masks)
        if self.is_poisoned:
            self.finite[handle.batch.step_id] = tuple(map(self.is_finite, handle.batch.rows))

    def is_finite(self, row: Row) -> bool:
        return not (row.sample or row.targets or row.pool) or POISON not in self._context(row)

    def collect(self, handle: _StepHandle) -> StepResult:
        self.trip("collect")
        result = super().collect(handle)
        finite = self.finite.pop(result.step_id, result.finite)
        return msgspec.structs.replace(result, finite=finite)


@contextlib.contextmanager
def _own_checks() -> Iterator[None]:
    """What the double finds wrong is no failing step that the loop may contain."""
    try:
        yield
    except AssertionError as error:
        pytest.fail(str(error))


class Chunks(StepBudget):
    """Lets prefill have so many tokens in each step: fewer than the real one would ever give."""

    def __init__(self, size: int) -> None:
        super().__init__(StepLimits(size, math.inf))
        self.size = size

    def tokens(self, decodes: int, position: int = 0, arriving_per_s: float = 0.0) -> int:
        return decodes + self.size


class Stop:
    """An event that is set once it was asked so often."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def is_set(self) -> bool:
        self.steps -= 1
        return self.steps < 0


class Trial:
    """`tokens`: room in the cache. `chunk`: prefill tokens of a step. `guesses`: in a draft.
    `options`: the scheduler's.
    """

    def __init__(
        self,
        *,
        depth: int,
        chunk: int,
        compile_steps: int,
        page_size: int,
        tokens: int,
        guesses: int = 0,
        **options: Any,
    ) -> None:
        self.guesses = guesses
        self.depth = depth
        self.chunk = chunk
        self.compile_steps = compile_steps
        self.options = options | {
            "page_size": page_size,
            "num_pages": 1 + tokens // page_size,
            "max_model_len": LIMIT,
            "eos_token_ids": EOS,
        }
        self.rig = self.engine()
        self.sends = Counter[str]()
        self.requests: dict[str, Generate] = {}
        self.sent_s: dict[str, float] = {}
        self.aborted: set[tuple[str, int]] = set()
        self.faults = 0
        self.resets = 0

    def engine(self) -> Rig:
        self.runner = FaultyRunner(depth=self.depth, page_size=self.options["page_size"])
        return Rig(
            runner=self.runner,
            budget=Chunks(self.chunk),
            grammars=FakeGrammars(self.compile_steps),
            drafter=Guesser(self.guesses) if self.guesses else None,
            **self.options,
        )

    def ask(
        self,
        prompt: tuple[int, ...],
        *,
        seed: int | None = None,
        words: str | None = None,
        min_tokens: int = 0,
        max_tokens: int | None = None,
        **fields: Any,
    ) -> None:
        """`words`: the text of a grammar. Without a seed it is greedy."""
        request = generate(
            f"r{len(self.requests)}",
            prompt,
            seed=seed,
            temperature=0.0 if seed is None else 1.0,
            grammar=None if words is None else Grammar("regex", words),
            max_tokens=max_tokens,
            min_tokens=min_tokens if max_tokens is None else min(min_tokens, max_tokens),
            **fields,
        )
        self.requests[request.request_id] = request
        self.send(request)

    def send(self, request: Generate) -> None:
        self.sends[request.request_id] += 1
        self.sent_s[request.request_id] = self.rig.now
        self.rig.send(request)

    def step(self, count: int) -> None:
        for _ in range(count):
            self.rig.now += STEP_S
            self.rig.step()

    def reset_prefix_cache(self) -> None:
        self.resets += 1
        self.rig.send(ResetPrefixCache(f"reset-{self.resets}"))

    def abort(self, request_id: str, index: int | None) -> None:
        self.aborted.update((request_id, i) for i in (range(3) if index is None else [index]))
        self.rig.send(Abort(request_id, index))

    def break_a_step(self, stage: str) -> None:
        """The next step that comes to this stage raises."""
        self.runner.fault = stage
        self.faults += 1

    def break_a_row(self, row: int) -> None:
        """A row of the next step is not finite."""
        self.runner.bad_row = row
        self.faults += 1

    def start_another_engine(self, stage: str, steps: int) -> None:
        """The old one is stopped after so many steps, and tells everyone; or it loses its device at
        this stage, and what it has shown nothing of goes on in the new one.
        """
        self.faults += 1
        self.runner.fault, self.runner.error = stage, FatalRunnerError
        old = self.rig
        is_lost = False
        try:
            old.loop.run(Stop(steps))  # type: ignore[arg-type]  # all that is asked of an event
        except FatalRunnerError:
            is_lost = True
        self.rig = self.engine()
        self.rig.now, self.rig.port.events = old.now, old.port.events
        self.rig.send(*old.port.inbox)
        if is_lost:
            self.send_again(old)

    def send_again(self, old: Rig) -> None:
        """What the client does."""
        unread = {id(command) for command in old.port.inbox}
        refused = {event.request_id for event in old.port.of(Rejected)}
        shown = {event.request_id for event in old.port.of(Tokens)}
        for request_id, request in self.requests.items():
            if request_id in shown:
                self.give_up(request)
            elif request_id not in refused and id(request) not in unread:
                self.send(request)

    def give_up(self, request: Generate) -> None:
        """Outputs that the lost engine left behind cannot be begun again."""
        for index in range(n_outputs(request)):
            messages = self.rig.port.messages(request.request_id, index)
            if not any(message.finish_reason for message in messages):
                [end] = unstarted(request, BROKEN, [index])
                self.rig.port.events.append(end)

    # -- the judge --------------------------------------------------------------------------

    def judge(self) -> None:
        """Run to the end, look at everything that was told, and see that all is well again."""
        self.rig.run()
        self.judge_answers()
        self.runner.fault, self.runner.bad_row = "", None
        for turn in ("heals", "is right"):
            found = [self.probe(f"{turn} {at}", prompt) for at, prompt in enumerate(PROBES)]
        assert all(found)

    def probe(self, request_id: str, prompt: tuple[int, ...]) -> bool:
        """Whether a request is answered. Poison that was cached before anybody saw it is found out
        by the first who reads it, and goes.
        """
        request = generate(request_id, prompt, max_tokens=2)
        self.rig.run(request)
        if self.rig.port.finish(request_id).finish_reason == "error":
            return False
        expected, _ = isolated(request, eos=EOS, limit=LIMIT)
        assert self.rig.port.tokens(request_id) == expected
        return True

    def judge_answers(self) -> None:
        answers = self.rig.port.of(Accepted) + self.rig.port.of(Rejected)
        resets = [f"reset-{number}" for number in range(1, self.resets + 1)]
        answered = Counter(answer.request_id for answer in answers)
        assert set(answered) == {*self.requests, *resets}
        assert answered <= self.sends + Counter(resets)
        for answer in {answer.request_id: answer for answer in answers}.values():
            if answer.request_id in resets:
                assert isinstance(answer, Accepted)
            elif isinstance(answer, Accepted):
                self.judge_request(self.requests[answer.request_id])
            else:
                self.judge_refusal(self.requests[answer.request_id], answer)
        stats = self.rig.scheduler.stats()
        assert stats.pages_free + stats.pages_cached == stats.pages_total
        assert stats.running == stats.waiting == stats.host_pages_used == 0

    def judge_refusal(self, request: Generate, answer: Rejected) -> None:
        sampling = request.sampling
        if answer.code == "context_length_exceeded":
            asked = len(request.prompt_token_ids) + (sampling.max_tokens or 1)
            assert asked > self.rig.scheduler.max_model_len
        elif answer.status != 429:
            assert sampling.grammar
            assert sampling.grammar.text == "nonsense"
        assert not [e for e in self.rig.port.of(Tokens) if e.request_id == request.request_id]

    def judge_request(self, request: Generate) -> None:
        ends = [self.judge_output(request, index) for index in range(n_outputs(request))]
        messages = [e for e in self.rig.port.of(Tokens) if e.request_id == request.request_id]
        scores = [m.prompt_logprobs for m in messages if m.prompt_logprobs is not None]
        undisturbed = not any(end.finish_reason in {"abort", "error"} for end in ends)
        if request.sampling.prompt_logprobs is None or request.pooling:
            assert scores == []
        elif undisturbed:
            assert len(scores) == 1
        for found in scores:
            prompt, n_top = request.prompt_token_ids, request.sampling.prompt_logprobs
            wanted = [score(prompt[:at], prompt[at], n_top or 0) for at in range(1, len(prompt))]
            assert list(found) == wanted

    def judge_output(self, request: Generate, index: int) -> Tokens:
        request_id = request.request_id
        end = self.rig.port.finish(request_id, index)
        if end.finish_reason == "abort":
            assert (request_id, index) in self.aborted
        elif end.error_code == "deadline_exceeded":
            assert request.timeout_s is not None
            assert self.rig.now >= self.sent_s[request_id] + request.timeout_s
        elif end.finish_reason == "error":
            assert self.faults
            assert end.error
        elif request.pooling:
            n_summed = len(request.prompt_token_ids) if request.pooling == "mean" else 0
            assert end.pooled == vector(request.prompt_token_ids, n_summed)
            assert end.finish_reason == "stop"
            return end
        self.judge_tokens(request, index, end)
        return end

    def judge_tokens(self, request: Generate, index: int, end: Tokens) -> None:
        limit = self.rig.scheduler.max_model_len
        tokens = self.rig.port.tokens(request.request_id, index)
        grammar = request.sampling.grammar
        if request.pooling or (grammar and grammar.text == "nonsense"):  # withdrawn in time
            assert tokens == []
            assert end.finish_reason != "length"
            return
        expected, reason = isolated(request, index=index, eos=EOS, limit=limit)
        if end.finish_reason in {"stop", "length"}:
            assert (tokens, end.finish_reason) == (expected, reason)
        assert tokens == expected[: len(tokens)]
        if end.finish_reason == "stop" and end.stop_token_id is None:
            matcher = ParityMatcher.of(request)
            assert matcher is not None
            assert matcher.length == len(tokens)
        else:
            assert end.stop_token_id == (tokens[-1] if end.finish_reason == "stop" else None)
        messages = self.rig.port.messages(request.request_id, index)
        self.judge_logprobs(request, tokens, messages)
        assert [m.queued_s is not None for m in messages[1:]] == [False] * len(messages[1:])

    def judge_logprobs(self, request: Generate, tokens: list[int], messages: list[Tokens]) -> None:
        found = [one for message in messages for one in message.logprobs]
        if (n_top := request.sampling.logprobs) is None:
            assert found == []
            return
        context = [*request.prompt_token_ids, *tokens]
        start = len(request.prompt_token_ids)
        assert found == [
            score(context[:at], context[at], n_top) for at in range(start, len(context))
        ]
