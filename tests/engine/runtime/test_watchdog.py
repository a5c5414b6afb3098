"""What counts as a hang, and what the watchdog does about it."""

import asyncio
import logging
import threading
import time
from pathlib import Path

import pytest

from yaie.ipc.channel import EXIT_HANGS, Beat, EngineChannel, FromEngine
from yaie.runtime import phases
from yaie.runtime.loop.step_budget import StepBudget, StepLimits
from yaie.runtime.loop.step_cost import StepShape
from yaie.runtime.process import watchdog
from yaie.runtime.process.watchdog import (
    FIRST_LIMIT_S,
    LIMIT_S,
    PHASE_LIMIT_S,
    StepTimer,
    Watchdog,
    limit_s,
)


def test_a_step_may_take_ten_times_what_earlier_ones_predict() -> None:
    assert limit_s(0.001) == LIMIT_S
    assert limit_s(3.0) == 30.0


def test_before_anything_was_measured_the_limit_is_long() -> None:
    assert limit_s(None) == FIRST_LIMIT_S


def test_the_age_is_that_of_the_running_step() -> None:
    age = StepTimer()
    for seconds in (0.5, 1.0, 1.5):
        age.observe(seconds, 0.5, "")
    assert age.seconds == 1.5
    age.observe(0.2, 0.5, "")
    assert age.seconds == 0.2


def test_short_steps_never_add_up() -> None:
    age = StepTimer()
    for turn in range(1000):
        age.observe((turn % 49) / 100, 0.5, "")
        assert age.seconds < 0.5


def test_declared_phases_do_not_count() -> None:
    age = StepTimer()
    for turn in range(100):
        age.observe(0.5 * (turn + 1), 0.5, "kernel compilation" if turn < 90 else "")
    assert age.seconds == 5.0
    assert not age.hangs(LIMIT_S)


def test_a_phase_that_never_ends_is_a_hang_too() -> None:
    age = StepTimer()
    age.observe(1.0, PHASE_LIMIT_S + 1, "graph capture")
    assert age.hangs(LIMIT_S)


def test_a_phase_ends_with_its_block_whatever_happens() -> None:
    seen: list[str] = []

    def capture() -> None:
        seen.append(phases.current())
        raise ValueError("bad")

    with pytest.raises(ValueError, match="bad"), phases.declared("graph capture"):
        capture()
    assert seen == ["graph capture"]
    assert phases.current() == ""


def test_kernels_may_compile_inside_another_phase() -> None:
    with phases.declared("graph capture"):
        phases.begin_compilation(key="a")
        assert phases.current() == phases.COMPILATION
        phases.end_compilation(key="a")
        assert phases.current() == "graph capture"
        phases.begin_compilation()  # fails, and so never ends
    assert phases.current() == ""
    phases.end_compilation()
    for _ in range(2):  # the first one fails
        phases.begin_compilation()
    phases.end_compilation()
    assert phases.current() == ""


def test_the_compiler_tells_when_it_begins_and_ends() -> None:
    knobs = pytest.importorskip("triton").knobs
    before = (knobs.runtime.jit_cache_hook, knobs.runtime.jit_post_compile_hook)
    try:
        phases.declare_compilations()
        assert knobs.runtime.jit_cache_hook(key="x", already_compiled=False) is None
        assert phases.current() == phases.COMPILATION
        knobs.runtime.jit_post_compile_hook(key="x")
        assert phases.current() == ""
    finally:
        knobs.runtime.jit_cache_hook, knobs.runtime.jit_post_compile_hook = before


def test_the_budget_predicts_the_steps_in_flight() -> None:
    budget = StepBudget(StepLimits(512, 0.05))
    budget.launched(StepShape(4))
    assert budget.expected_s() is None
    for _ in range(20):
        budget.observe(StepShape(4), 0.02)
    assert budget.expected_s() == pytest.approx(0.02, rel=0.2)
    budget.launched(StepShape(4))
    assert budget.expected_s() == pytest.approx(0.04, rel=0.2)


def test_it_beats_and_ends_a_process_whose_step_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(watchdog, "INTERVAL_S", 0.02)
    monkeypatch.setattr(watchdog, "LIMIT_S", 0.2)
    address = f"ipc://{tmp_path}/engine"
    ended: list[int] = []
    started = time.monotonic()
    hangs = threading.Event()
    watch = Watchdog(
        address,
        lambda: time.monotonic() - started if hangs.is_set() else 0.0,
        lambda: 0.001,
        end=lambda status: (ended.append(status), watch._stop.set()),
    )

    async def main() -> list[FromEngine]:
        beats: list[FromEngine] = []
        last = asyncio.Event()

        def take(message: FromEngine) -> None:
            beats.append(message)
            if len(beats) == 3:
                hangs.set()
            if isinstance(message, Beat) and message.hangs:
                last.set()

        channel = EngineChannel(address, take)
        watch.start()
        await asyncio.wait_for(last.wait(), 10)
        channel.close()
        return beats

    with caplog.at_level(logging.CRITICAL):
        beats = asyncio.run(main())
    watch.stop()  # waits for its thread
    assert ended == [EXIT_HANGS]
    assert not any(isinstance(beat, Beat) and beat.hangs for beat in beats[:3])
    record = next(record for record in caplog.records if record.message == "step hangs")
    assert "thread MainThread" in str(vars(record))
