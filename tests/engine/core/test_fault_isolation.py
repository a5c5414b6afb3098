"""A failed step harms nobody but who caused it."""

import logging
import math
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_harness import PAGE, VOCAB, Rig, add, commit, generate, isolated, make_scheduler, step
from fakes.stub_runner import StubRunner, _StepHandle, hashed
from yaie.core.batch import Batch, StepResult
from yaie.core.messages import Abort, Generate
from yaie.core.outputs import CLOSING, Failure
from yaie.core.scheduler.fault_isolation import MAX_UNEXPLAINED
from yaie.runtime.grammar.pending import TokenMasks

LOST = Failure("engine_error", "lost")
STAGES = ("before launch", "launch", "sample", "collect")


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> Iterator[None]:
    logging.getLogger("yaie.runtime.loop.engine_loop").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("yaie.runtime.loop.engine_loop").setLevel(logging.NOTSET)


class CursedRunner(StubRunner):
    """Fails every step that computes a cursed position or a later one. `curses`: a request's seed
    to the position. `most`: it fails steps with more rows than these, too.
    """

    def __init__(self, stage: str, curses: dict[int, int], most: int = 999, **options: Any) -> None:
        super().__init__(hashed(VOCAB), page_size=PAGE, **options)
        self.stage = stage
        self.curses = curses
        self.most = most
        self.failed: list[int] = []
        self._seeds: dict[int, int | None] = {}
        self._cursed: set[int] = set()

    def launch(self, batch: Batch) -> _StepHandle:
        self._seeds |= {init.seq_id: init.sampling.seed for init in batch.inits}
        for row in batch.rows:
            position = self.curses.get(self._seeds[row.seq_id] or 0, 999)
            if position < row.start + row.n_tokens or len(batch.rows) > self.most:
                self._cursed.add(batch.step_id)
        self.fail("before launch", batch.step_id)
        handle = super().launch(batch)
        self.fail("launch", batch.step_id)
        return handle

    def sample(self, handle: _StepHandle, masks: TokenMasks | None = None) -> None:
        self.fail("sample", handle.batch.step_id)
        super().sample(handle, masks)

    def collect(self, handle: _StepHandle) -> StepResult:
        self.fail("collect", handle.batch.step_id)
        return super().collect(handle)

    def fail(self, stage: str, step_id: int) -> None:
        if stage == self.stage and step_id in self._cursed:
            self.failed.append(step_id)
            raise RuntimeError("a curse")


def requests_of(lengths: list[tuple[int, int, int]]) -> list[Generate]:
    """Requests with their number as seed; (prompt length, max_tokens, n) each."""
    return [
        generate(str(number), [number, *range(1, length)], max_tokens=most, n=n, seed=number)
        for number, (length, most, n) in enumerate(lengths)
    ]


def judge(rig: Rig, request: Generate, curse: int | None) -> None:
    """It has its tokens, up to its own curse if it gets there, or one that was in flight less."""
    for index in range(request.sampling.n):
        expected, reason = isolated(request, index=index, limit=rig.scheduler.max_model_len)
        end = rig.port.finish(request.request_id, index)
        tokens = rig.port.tokens(request.request_id, index)
        n_prompt = len(request.prompt_token_ids)
        last = n_prompt + len(expected) - 2  # the last position that has to run
        if curse is None or curse > last + 1:
            assert (tokens, end.finish_reason) == (expected, reason)
        elif curse <= last or end.finish_reason == "error":
            most = max(0, curse - n_prompt + 1)
            assert end.error_code == "engine_error"
            assert tokens == expected[: len(tokens)]
            assert most - rig.runner.depth <= len(tokens) <= most


@settings(max_examples=150, deadline=None)
@given(
    stage=st.sampled_from(STAGES),
    lengths=st.lists(
        st.tuples(st.integers(1, 12), st.integers(1, 24), st.sampled_from([1, 1, 1, 2])),
        min_size=1,
        max_size=9,
    ),
    curses=st.dictionaries(st.integers(0, 8), st.integers(0, 16), max_size=3),
    depth=st.integers(0, 2),
    budget=st.integers(3, 24),
    options=st.fixed_dictionaries(
        {
            "num_pages": st.integers(12, 40),
            "max_num_seqs": st.integers(1, 9),
            "enable_prefix_caching": st.booleans(),
            "policy": st.sampled_from(["fcfs", "priority", "longest-prefix", "fair"]),
            "host_pages": st.sampled_from([0, 12]),
            "swap_min_tokens": st.sampled_from([1, 6]),
        }
    ),
)
def test_the_cursed_end_with_an_error_and_nobody_else(
    *,
    stage: str,
    lengths: list[tuple[int, int, int]],
    curses: dict[int, int],
    depth: int,
    budget: int,
    options: dict[str, Any],
) -> None:
    runner = CursedRunner(stage, curses, depth=depth)
    rig = Rig(runner=runner, budget=budget, **options)
    requests = requests_of(lengths)
    rig.send(*requests)
    rig.run()
    for number, request in enumerate(requests):
        judge(rig, request, curses.get(number))
    assert rig.scheduler.stats().host_pages_used == 0


@pytest.mark.parametrize("position", [3, 7])
def test_one_guilty_among_many_is_found_by_halving(position: int) -> None:
    runner = CursedRunner("collect", {21: position}, depth=1)
    rig = Rig(runner=runner, budget=1024, num_pages=400, max_num_seqs=32)
    requests = requests_of([(5, 12, 1)] * 32)
    rig.send(*requests)
    rig.run()
    assert len(runner.failed) <= 1 + math.log2(32) + 1  # and once in the step that was in flight
    for number, request in enumerate(requests):
        judge(rig, request, position if number == 21 else None)


def test_an_error_that_passes_harms_nobody() -> None:
    runner = CursedRunner("launch", {0: 6})
    rig = Rig(runner=runner)
    requests = requests_of([(5, 8, 1)] * 4)
    rig.send(*requests)
    while not runner.failed:
        rig.step()
    runner.curses.clear()
    rig.run()
    for request in requests:
        judge(rig, request, None)


def test_witnesses_of_many_failures_are_not_to_blame() -> None:
    runner = CursedRunner("launch", dict.fromkeys(range(1, 30), 2))
    rig = Rig(runner=runner)
    witness, *cursed = requests_of([(5, 90, 1)] * 30)
    rig.send(witness)
    for request in cursed:
        rig.step()
        rig.step()
        rig.send(request)
    rig.run()
    judge(rig, witness, None)
    assert {rig.port.finish(one.request_id).error_code for one in cursed} == {"engine_error"}


def test_company_that_always_fails_is_not_tried_for_ever() -> None:
    runner = CursedRunner("launch", {}, most=1)
    rig = Rig(runner=runner)
    short, long = (5, MAX_UNEXPLAINED, 1), (5, 100, 1)
    rig.send(*requests_of([short, short, long, long]))
    rig.run()
    assert len(runner.failed) < 8 * MAX_UNEXPLAINED
    reasons = [rig.port.finish(str(number)).finish_reason for number in range(4)]
    assert reasons[:2] == ["length", "length"]
    assert "error" in reasons[2:]


def failed_step(names: str) -> Any:
    """A scheduler whose first step, of all these, has failed."""
    scheduler = make_scheduler()
    for name in names:
        add(scheduler, name, [ord(name) % VOCAB, 1, 2, 3, 4])
    batch = scheduler.schedule(0.0, 64)
    assert scheduler.fail_step(batch.step_id, LOST) == []
    scheduler.check()
    return scheduler


def test_suspects_run_apart_from_newcomers() -> None:
    scheduler = failed_step("abcd")
    add(scheduler, "new", [9, 9])
    tried = []
    for _ in range(2):
        batch = scheduler.schedule(0.0, 64)
        tried.append([row.seq_id for row in batch.rows])
        commit(scheduler, batch)
    assert tried == [[0, 1], [2, 3]]
    assert len(scheduler.schedule(0.0, 64).rows) == 5


def test_a_suspect_that_is_aborted_is_not_tried() -> None:
    scheduler = failed_step("ab")
    scheduler.abort("a")
    scheduler.check()
    (row,) = scheduler.schedule(0.0, 64).rows
    assert row.seq_id == 1


def test_suspects_end_with_the_engine() -> None:
    scheduler = failed_step("ab")
    ends = scheduler.fail_all(CLOSING)
    assert {(end.request_id, end.finish_reason) for end in ends} == {("a", "error"), ("b", "error")}
    assert scheduler.schedule(0.0, 64) is None
    assert scheduler.is_idle


def test_suspects_without_room_wait_for_their_turn() -> None:
    """What outputs share is kept for the next of them, and one that is no suspect runs."""
    scheduler = make_scheduler(num_pages=14, enable_prefix_caching=False)
    add(scheduler, "a", range(8 * PAGE - 1), n=4, max_tokens=3)
    step(scheduler)
    lost = scheduler.schedule(0.0, 2)
    flying = scheduler.schedule(0.0, 3)
    assert [len(batch.rows) for batch in (lost, flying)] == [2, 3]
    assert scheduler.fail_step(lost.step_id, LOST) == []
    commit(scheduler, flying)
    batch = scheduler.schedule(0.0, 1)
    assert [row.seq_id for row in batch.rows] == [2]
    scheduler.check()
    events = commit(scheduler, batch)
    while not scheduler.is_idle:
        events += step(scheduler)
    assert [e.index for e in events if e.finish_reason == "length"] == [2, 0, 1, 3]


def test_a_request_sent_again_after_its_abort_starts_unsuspected() -> None:
    rig = Rig(runner=CursedRunner("launch", {0: 2}))
    rig.send(*requests_of([(5, 4, 1)] * 2))
    rig.step()
    rig.send(Abort("0"), Abort("1"))
    rig.run()
    rig.send(generate("again", [7, 1, 2], max_tokens=4, seed=7))
    rig.run()
    assert rig.port.finish("again").finish_reason == "length"
