"""Whatever happens, every request ends once, with the tokens of a run on its own.

The engine double keeps real pages: a page used twice, trusted too early or freed too soon gives
wrong tokens. Steps fail at any stage, rows are not finite, pages run out, clients go away.
"""

import logging
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine_harness import PAGE, VOCAB, Rig, generate, isolated
from yaie.core.batch import Batch, StepResult
from yaie.core.messages import Abort, Accepted, Generate, Rejected
from yaie.runtime.compiling import TokenMasks
from yaie.runtime.stub import StubRunner, _Ticket, hashed

EOS = (3, 17)
LIMIT = 24


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
        return StepResult(result.step_id, result.tokens, finite)


class SchedulerMachine(RuleBasedStateMachine):
    @initialize(
        depth=st.integers(0, 2),
        num_pages=st.integers(7, 11),
        groups=st.integers(1, 2),
        slots=st.integers(2, 5),
        budget=st.integers(3, 24),
        caching=st.sampled_from([True, True, False]),
        calm=st.booleans(),
    )
    def start(
        self,
        *,
        depth: int,
        num_pages: int,
        groups: int,
        slots: int,
        budget: int,
        caching: bool,
        calm: bool,
    ) -> None:
        self.runner = FaultyRunner(depth=depth)
        self.rig = Rig(
            runner=self.runner,
            budget=budget,
            num_pages=num_pages,
            groups=groups,
            max_num_seqs=slots,
            max_num_queued_reqs=8,
            max_model_len=LIMIT,
            eos_token_ids=EOS,
            enable_prefix_caching=caching,
        )
        self.requests: dict[str, Generate] = {}
        self.aborted: set[str] = set()
        self.faults = 0
        self.calm = calm

    @rule(
        stem=st.sampled_from([(), (1,) * 4, (1,) * 8, (1, 1, 1, 1, 2, 2, 2, 2), (1,) * 12]),
        tail=st.lists(st.integers(1, 2), min_size=1, max_size=4),
        max_tokens=st.sampled_from([None, None, 1, 6, 12]),
        min_tokens=st.sampled_from([0, 0, 1]),
        priority=st.sampled_from([0, 0, 0, 1, -1]),
        salt=st.sampled_from(["", "", "", "b"]),
        seed=st.one_of(st.none(), st.integers(0, 3)),
        ignore_eos=st.booleans(),
    )
    def add(
        self,
        *,
        stem: tuple[int, ...],
        tail: list[int],
        max_tokens: int | None,
        seed: int | None,
        priority: int,
        salt: str,
        **sampling: Any,
    ) -> None:
        request = generate(
            f"r{len(self.requests)}",
            (*stem, *tail),
            priority=priority,
            salt=salt,
            max_tokens=max_tokens,
            seed=seed,
            temperature=0.0 if seed is None else 1.0,
            **sampling,
        )
        self.requests[request.request_id] = request
        self.rig.send(request)

    @rule(count=st.integers(1, 8))
    def step(self, count: int) -> None:
        for _ in range(count):
            self.rig.now += 0.01
            self.rig.step()

    @precondition(lambda self: self.requests and not self.calm)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        request_id = data.draw(st.sampled_from(sorted(self.requests)))
        self.aborted.add(request_id)
        self.rig.send(Abort(request_id))

    @precondition(lambda self: not self.calm)
    @rule(stage=st.sampled_from(["before launch", "after launch", "sample", "collect"]))
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
        port = self.rig.port
        answers = [event for event in port.events if isinstance(event, Accepted | Rejected)]
        assert sorted(answer.request_id for answer in answers) == sorted(self.requests)
        for answer in answers:
            if isinstance(answer, Accepted):
                self.judge(self.requests[answer.request_id])
        stats = self.rig.scheduler.stats()
        assert stats.pages_free + stats.pages_cached == stats.pages_total
        assert stats.running == stats.waiting == 0

    def judge(self, request: Generate) -> None:
        limit = self.rig.scheduler.max_model_len
        expected, reason = isolated(request, eos=EOS, limit=limit)
        tokens = self.rig.port.tokens(request.request_id)
        end = self.rig.port.finish(request.request_id)
        if end.finish_reason == "abort":
            assert request.request_id in self.aborted
        elif end.finish_reason == "error":
            assert self.faults
            assert end.error
        else:
            assert (tokens, end.finish_reason) == (expected, reason)
        assert tokens == expected[: len(tokens)]
        assert end.stop_token_id == (tokens[-1] if end.finish_reason == "stop" else None)


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
