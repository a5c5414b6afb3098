"""Whatever happens, every output ends once, with the tokens of a run on its own.

The engine double keeps real pages, on the device and in the host: a page used twice, trusted too
early, copied wrongly or freed too soon gives wrong tokens. Steps fail at any stage, rows are not
finite, pages run out, time runs out, clients go away.
"""

import logging
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine_harness import PAGE, VOCAB, FakeGrammars, ParityMatcher, Rig, generate, isolated
from yaie.core.batch import Batch, StepResult
from yaie.core.messages import Abort, Accepted, Generate, Rejected, ResetPrefixCache, Tokens
from yaie.core.outputs import n_outputs
from yaie.core.policies import POLICIES
from yaie.core.request import Grammar
from yaie.runtime.compiling import TokenMasks
from yaie.runtime.stub import StubRunner, _Ticket, hashed, score, vector

EOS = (3, 17)
LIMIT = 24
STEP_S = 0.01
STEMS = st.sampled_from([(), (1,) * 4, (1,) * 8, (1, 1, 1, 1, 2, 2, 2, 2), (1,) * 12])
TAILS = st.lists(st.integers(1, 2), min_size=1, max_size=4)
IDENTITY = {
    "priority": st.sampled_from([0, 0, 0, 1, -1]),
    "salt": st.sampled_from(["", "", "", "b"]),
    "tenant": st.sampled_from(["", "t", "u"]),
    "timeout_s": st.sampled_from([None, None, None, 0.05, 0.2]),
}


class FaultyRunner(StubRunner):
    """Raises or reports rows as not finite when told to."""

    def __init__(self, **options: Any) -> None:
        super().__init__(hashed(VOCAB), page_size=PAGE, **options)
        self.fault = ""
        self.bad_row: int | None = None

    def trip(self, stage: str) -> None:
        if self.fault == stage:
            self.fault = ""
            raise RuntimeError(f"out of memory at {stage}")

    def launch(self, batch: Batch) -> _Ticket:
        self.trip("before launch")
        if batch.swap_out or batch.swap_in or batch.copies:
            self.trip("swap")
        ticket = super().launch(batch)
        self.trip("after launch")
        return ticket

    def sample(self, ticket: _Ticket, masks: TokenMasks | None = None) -> None:
        self.trip("sample")
        super().sample(ticket, masks)

    def collect(self, ticket: _Ticket) -> StepResult:
        self.trip("collect")
        result = super().collect(ticket)
        if self.bad_row is None:
            return result
        bad, self.bad_row = self.bad_row % len(result.tokens), None
        finite = tuple(index != bad for index in range(len(result.tokens)))
        return StepResult(
            result.step_id,
            result.tokens,
            finite,
            result.logprobs,
            result.prompt_logprobs,
            result.pooled,
        )


class SchedulerMachine(RuleBasedStateMachine):
    @initialize(
        depth=st.integers(0, 2),
        budget=st.integers(3, 24),
        compile_steps=st.integers(0, 2),
        calm=st.booleans(),
        options=st.fixed_dictionaries(
            {
                "num_pages": st.integers(7, 11),
                "groups": st.integers(1, 2),
                "max_num_seqs": st.integers(2, 5),
                "enable_prefix_caching": st.sampled_from([True, True, False]),
                "policy": st.sampled_from(POLICIES),
                "host_pages": st.sampled_from([0, 3, 12]),
                "swap_min_tokens": st.sampled_from([1, 6]),
            }
        ),
    )
    def start(
        self,
        *,
        depth: int,
        budget: int,
        compile_steps: int,
        calm: bool,
        options: dict[str, Any],
    ) -> None:
        self.runner = FaultyRunner(depth=depth)
        self.rig = Rig(
            runner=self.runner,
            budget=budget,
            grammars=FakeGrammars(compile_steps),
            max_num_queued_reqs=12,
            max_model_len=LIMIT,
            eos_token_ids=EOS,
            **options,
        )
        self.requests: dict[str, Generate] = {}
        self.sent_s: dict[str, float] = {}
        self.aborted: set[tuple[str, int]] = set()
        self.faults = 0
        self.resets = 0
        self.calm = calm

    def send(self, prompt: tuple[int, ...], **fields: Any) -> None:
        request = generate(f"r{len(self.requests)}", prompt, **fields)
        self.requests[request.request_id] = request
        self.sent_s[request.request_id] = self.rig.now
        self.rig.send(request)

    @rule(
        stem=STEMS,
        tail=TAILS,
        seed=st.one_of(st.none(), st.integers(0, 3)),
        words=st.sampled_from([None, None, "1", "5", "nonsense"]),
        fields=st.fixed_dictionaries(
            IDENTITY
            | {
                "n": st.sampled_from([1, 1, 1, 2, 3]),
                "max_tokens": st.sampled_from([None, None, 0, 1, 6, 12]),
                "ignore_eos": st.booleans(),
                "logprobs": st.sampled_from([None, None, 2]),
                "prompt_logprobs": st.sampled_from([None, None, None, 0, 1]),
            }
        ),
        min_tokens=st.sampled_from([0, 0, 1]),
    )
    def add(
        self,
        *,
        stem: tuple[int, ...],
        tail: list[int],
        seed: int | None,
        words: str | None,
        fields: dict[str, Any],
        min_tokens: int,
    ) -> None:
        if fields["max_tokens"] != 0:
            fields["min_tokens"] = min_tokens
        fields["temperature"] = 0.0 if seed is None else 1.0
        grammar = None if words is None else Grammar("regex", words)
        self.send((*stem, *tail), seed=seed, grammar=grammar, **fields)

    @rule(
        stem=STEMS,
        tail=TAILS,
        pooling=st.sampled_from(["last", "mean", "classify"]),
        fields=st.fixed_dictionaries(IDENTITY),
    )
    def pool(
        self, *, stem: tuple[int, ...], tail: list[int], pooling: str, fields: dict[str, Any]
    ) -> None:
        self.send((*stem, *tail), pooling=pooling, **fields)

    @rule(count=st.integers(1, 8))
    def step(self, count: int) -> None:
        for _ in range(count):
            self.rig.now += STEP_S
            self.rig.step()

    @rule()
    def reset_prefix_cache(self) -> None:
        self.resets += 1
        self.rig.send(ResetPrefixCache(f"reset-{self.resets}"))

    @precondition(lambda self: self.requests and not self.calm)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        request_id = data.draw(st.sampled_from(sorted(self.requests)))
        index = data.draw(st.sampled_from([None, 0, 1, 2]))
        self.aborted.update((request_id, i) for i in (range(3) if index is None else [index]))
        self.rig.send(Abort(request_id, index))

    @precondition(lambda self: not self.calm)
    @rule(stage=st.sampled_from(["before launch", "swap", "after launch", "sample", "collect"]))
    def break_a_step(self, stage: str) -> None:
        self.runner.fault = stage
        self.faults += 1

    @precondition(lambda self: not self.calm)
    @rule(row=st.integers(0, 3))
    def break_a_row(self, row: int) -> None:
        self.runner.bad_row = row
        self.faults += 1

    @invariant()
    def proves_itself(self) -> None:
        if hasattr(self, "rig"):
            self.rig.scheduler.check()

    def teardown(self) -> None:
        if not hasattr(self, "rig"):
            return
        self.rig.run()
        answers = self.rig.port.of(Accepted) + self.rig.port.of(Rejected)
        resets = [f"reset-{number}" for number in range(1, self.resets + 1)]
        assert sorted(a.request_id for a in answers) == sorted([*self.requests, *resets])
        for answer in answers:
            if answer.request_id in resets:
                assert isinstance(answer, Accepted)
            elif isinstance(answer, Accepted):
                self.judge(self.requests[answer.request_id])
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

    def judge(self, request: Generate) -> None:
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


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> Any:
    logging.getLogger("yaie.runtime.loop").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("yaie.runtime.loop").setLevel(logging.NOTSET)


TestScheduler = SchedulerMachine.TestCase
TestScheduler.settings = settings(
    max_examples=100,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
