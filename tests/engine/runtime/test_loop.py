"""The loop: overlap, containment of failing steps, statistics, idling, the end."""

import threading
from typing import Any

import pytest

from engine_harness import PAGE, VOCAB, Rig, generate, isolated
from fakes.stub_runner import StubRunner, _StepHandle, hashed, scripted
from yaie.core.batch import Batch, StepResult
from yaie.core.messages import Abort, Accepted, Rejected, Stats, Tokens
from yaie.core.outputs import BROKEN
from yaie.runtime import phases
from yaie.runtime.grammar.pending import TokenMasks
from yaie.runtime.loop.engine_loop import IDLE_WAIT_S, QUIET_S, FatalRunnerError


class LoggingRunner(StubRunner):
    """Remembers its calls; raises `errors[stage]` once where given."""

    def __init__(self, depth: int = 0) -> None:
        super().__init__(hashed(VOCAB), page_size=PAGE, depth=depth)
        self.calls: list[str] = []
        self.errors: dict[str, Exception] = {}

    def note(self, stage: str, batch: Batch) -> None:
        self.calls.append(f"{stage} {batch.step_id}")
        if (error := self.errors.pop(stage, None)) is not None:
            raise error

    def launch(self, batch: Batch) -> _StepHandle:
        self.note("launch", batch)
        return super().launch(batch)

    def sample(self, handle: _StepHandle, masks: TokenMasks | None = None) -> None:
        self.note("sample", handle.batch)
        super().sample(handle, masks)

    def collect(self, handle: _StepHandle) -> StepResult:
        self.note("collect", handle.batch)
        return super().collect(handle)


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_every_depth_gives_the_tokens_of_an_isolated_run(depth: int) -> None:
    requests = [generate(f"r{i}", range(i, i + 9), max_tokens=12) for i in range(6)]
    rig = Rig(depth=depth)
    rig.run(*requests)
    for request in requests:
        assert rig.port.tokens(request.request_id) == isolated(request)[0]
        assert rig.port.finish(request.request_id).finish_reason == "length"


def test_without_overlap_a_step_is_collected_in_its_own_turn() -> None:
    runner = LoggingRunner(depth=0)
    Rig(runner=runner).run(generate("a", [1], max_tokens=2))
    assert runner.calls == [
        *("launch 0", "sample 0", "collect 0"),
        *("launch 1", "sample 1", "collect 1"),
    ]


def test_with_overlap_the_next_forward_is_launched_before_the_last_result_is_collected() -> None:
    runner = LoggingRunner(depth=1)
    Rig(runner=runner).run(generate("a", [1], max_tokens=3))
    assert runner.calls == [
        *("launch 0", "sample 0"),
        *("launch 1", "collect 0", "sample 1"),
        *("launch 2", "collect 1", "sample 2"),
        "collect 2",
    ]


def test_requests_are_answered_before_their_first_token() -> None:
    rig = Rig()
    rig.run(generate("a", [1, 2, 3]), generate("b", []))
    events = [event for event in rig.port.events if not isinstance(event, Stats)]
    assert [type(event) for event in events][:3] == [Accepted, Rejected, Tokens]


def test_an_abort_is_answered_once() -> None:
    rig = Rig()
    rig.send(generate("a", [1, 2, 3], max_tokens=100))
    for _ in range(3):
        rig.step()
    rig.run(Abort("a"), Abort("a"), Abort("never-seen"))
    assert rig.port.finish("a").finish_reason == "abort"
    assert len(rig.port.tokens("a")) == 3


@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize("stage", ["launch", "sample", "collect"])
def test_a_failing_step_fails_its_own_sequences_only(
    stage: str, depth: int, caplog: pytest.LogCaptureFixture
) -> None:
    runner = LoggingRunner(depth)
    rig = Rig(runner=runner)
    rig.send(generate("victim", [1, 2, 3]))
    rig.step()
    rig.step()
    runner.errors[stage] = MemoryError("secret detail")
    rig.run()
    end = rig.port.finish("victim")
    assert end.finish_reason == "error"
    assert end.error == "The engine failed on this request (out of memory)."
    assert "step failed" in caplog.text
    after = generate("after", [1, 2, 3])
    rig.run(after)
    assert rig.port.tokens("after") == isolated(after)[0]


def test_a_lost_device_ends_the_loop_and_tells_everyone_who_runs() -> None:
    runner = LoggingRunner()
    rig = Rig(runner=runner)
    runner.errors["collect"] = FatalRunnerError("device gone")
    rig.send(generate("a", [1]), generate("b", [2]))
    with pytest.raises(FatalRunnerError):
        rig.loop.run(threading.Event())
    assert {rig.port.finish(name).finish_reason for name in "ab"} == {"error"}
    assert {rig.port.finish(name).error for name in "ab"} == {BROKEN.message}


@pytest.mark.parametrize("stage", ["launch", "sample", "collect"])
def test_a_loop_whose_device_is_lost_still_falls_idle(stage: str) -> None:
    runner = LoggingRunner(depth=1)
    rig = Rig(runner=runner)
    runner.errors[stage] = FatalRunnerError("device gone")
    rig.send(generate("a", [1]))
    with pytest.raises(FatalRunnerError):
        rig.loop.run(threading.Event())
    for _ in range(3):
        rig.loop.step()
    assert rig.loop.is_idle


def test_who_only_waits_for_a_lost_device_may_be_sent_again() -> None:
    runner = LoggingRunner()
    rig = Rig(runner=runner, max_num_seqs=1)
    runner.errors["collect"] = FatalRunnerError("device gone")
    rig.send(generate("runs", [1]), generate("waits", [2]))
    with pytest.raises(FatalRunnerError):
        rig.loop.run(threading.Event())
    ended = {e.request_id for e in rig.port.events if isinstance(e, Tokens) and e.finish_reason}
    assert ended == {"runs"}


def test_stopping_tells_whoever_is_left() -> None:
    rig = Rig()
    rig.send(generate("a", [1], max_tokens=None))
    stop = threading.Event()
    steps = iter(range(5))

    def drain(**_: Any) -> list[Any]:
        if next(steps, None) is None:
            stop.set()
        commands, rig.port.inbox = rig.port.inbox, []
        return commands

    rig.port.drain = drain  # type: ignore[method-assign]
    rig.loop.run(stop)
    assert rig.port.finish("a").error == "The engine is shutting down."


def test_only_an_idle_loop_waits_for_commands() -> None:
    rig = Rig()
    rig.step()
    rig.send(generate("a", [1], max_tokens=2))
    for _ in range(3):
        rig.step()
    assert rig.port.waits == [QUIET_S, IDLE_WAIT_S, 0.0, IDLE_WAIT_S]


def test_statistics_come_four_times_a_second_and_when_the_loop_falls_idle() -> None:
    runner = StubRunner(scripted([5]), page_size=PAGE)
    rig = Rig(runner=runner)
    rig.send(generate("a", [1, 2], max_tokens=101))
    for _ in range(101):
        rig.now += 0.01
        rig.step()
    stats = rig.port.of(Stats)
    assert 4 <= len(stats) <= 6
    assert (stats[0].running, stats[-1].running) == (1, 0)
    assert (stats[-1].generated_tokens, stats[-1].prompt_tokens, stats[-1].steps) == (101, 2, 101)
    assert stats[-1].pages_free + stats[-1].pages_cached == stats[-1].pages_total


def test_an_idle_loop_still_gives_a_sign_of_life() -> None:
    rig = Rig()
    for _ in range(10):
        rig.now += IDLE_WAIT_S
        rig.step()
    assert len(rig.port.of(Stats)) == 10


def test_an_idle_loop_proves_the_pages_once_until_there_was_work_again() -> None:
    rig = Rig()
    proofs = []
    rig.scheduler.check = lambda: proofs.append(rig.now)  # type: ignore[method-assign]
    for _ in range(2):
        rig.loop.step()
        rig.port.inbox.append(generate("a", [1], max_tokens=2))
        for _ in range(5):
            rig.loop.step()
    assert len(proofs) == 2


def test_step_seconds_add_up_to_the_time_spent_in_steps() -> None:
    for depth in (0, 1):
        rig = Rig(depth=depth)
        rig.runner._step_s = 0.5
        rig.run(generate("a", [1], max_tokens=6))
        stats = rig.port.of(Stats)[-1]
        assert stats.step_seconds == pytest.approx(3.0)


def test_the_age_of_the_last_step_grows_only_while_there_is_work() -> None:
    rig = Rig()
    rig.now += 50
    assert rig.loop.last_step_age_s() == 0
    rig.send(generate("a", [1], max_tokens=3))
    rig.step()
    rig.now += 7
    assert rig.loop.last_step_age_s() == 7
    rig.step()
    assert rig.loop.last_step_age_s() == 0


def test_kernels_compiled_after_the_start_are_counted() -> None:
    phases.begin_compilation()
    phases.end_compilation()
    rig = Rig()
    rig.run(generate("a", [1, 2, 3]))
    assert rig.port.of(Stats)[-1].late_compilations == 0
    phases.begin_compilation()
    phases.end_compilation()
    rig.now += 1.0
    rig.run(generate("b", [1, 2, 3]))
    assert rig.port.of(Stats)[-1].late_compilations == 1


def warm_up_piece() -> None:
    phases.begin_compilation()
    phases.end_compilation()


def test_warm_up_that_was_put_off_is_done_while_nobody_waits() -> None:
    rig = Rig()
    rig.runner.put_off = [warm_up_piece, warm_up_piece]
    rig.send(generate("a", [1, 2, 3], max_tokens=4))
    while not rig.port.tokens("a") or not rig.loop.is_idle:
        rig.step()
        assert len(rig.runner.put_off) == 2
    rig.step()
    assert len(rig.runner.put_off) == 1
    rig.send(generate("b", [1, 2, 3]))
    rig.step()
    assert len(rig.runner.put_off) == 1, "a request comes first"


def test_what_is_compiled_while_nobody_waits_is_not_late() -> None:
    rig = Rig()
    rig.runner.put_off = [warm_up_piece]
    for _ in range(3):
        rig.step()
    rig.run(generate("a", [1, 2, 3]))
    assert not rig.runner.put_off
    assert rig.port.of(Stats)[-1].late_compilations == 0


def test_a_loop_with_warm_up_left_looks_for_commands_often_and_then_seldom() -> None:
    rig = Rig()
    rig.runner.put_off = [warm_up_piece, warm_up_piece]
    for _ in range(4):
        rig.step()
    assert rig.port.waits == [QUIET_S, QUIET_S, IDLE_WAIT_S, IDLE_WAIT_S]


def test_an_engine_whose_warm_up_fails_serves_with_what_it_has(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken() -> None:
        raise RuntimeError("capture failed")

    rig = Rig()
    rig.runner.put_off = [broken, warm_up_piece]
    rig.step()
    rig.step()
    assert "warm-up is left unfinished" in caplog.text
    assert len(rig.runner.put_off) == 1
    rig.run(generate("a", [1, 2, 3]))
    assert rig.port.finish("a").finish_reason == "length"


def test_a_device_that_is_lost_in_the_warm_up_ends_the_engine() -> None:
    def lost() -> None:
        raise FatalRunnerError("lost")

    rig = Rig()
    rig.runner.put_off = [lost]
    with pytest.raises(FatalRunnerError):
        rig.step()
