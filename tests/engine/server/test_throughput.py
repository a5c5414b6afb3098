"""The line of the log that says what a busy engine does."""

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from typing import Any

import pytest

from yaie.core.messages import Stats
from yaie.server.monitoring.throughput import figures, report_throughput

IDLE = Stats(
    running=0,
    waiting=0,
    pages_total=100,
    pages_free=90,
    pages_cached=10,
    prompt_tokens=1000,
    cached_prompt_tokens=400,
    generated_tokens=500,
    preemptions=0,
    steps=50,
    step_seconds=1.0,
    step_budget_tokens=512,
)


def later(**changes: Any) -> Stats:
    values = {name: getattr(IDLE, name) for name in IDLE.__struct_fields__}
    return Stats(**(values | changes))


def test_a_busy_period_is_told_in_rates() -> None:
    now = later(
        running=3, waiting=2, pages_free=40, prompt_tokens=1200, cached_prompt_tokens=450,
        generated_tokens=900, steps=99,
    )  # fmt: skip
    assert figures(IDLE, now, 10.0) == {
        "prompt_tokens_per_s": 15.0,
        "generation_tokens_per_s": 40.0,
        "running": 3,
        "waiting": 2,
        "kv_usage_percent": 50.0,
        "prefix_hit_percent": 25.0,
    }


def test_an_idle_period_is_not_told_and_one_in_which_requests_only_wait_is() -> None:
    assert figures(IDLE, IDLE, 10.0) is None
    assert figures(IDLE, later(waiting=1), 10.0) is not None


def test_a_new_engine_process_counts_from_zero() -> None:
    found = figures(later(steps=80), later(steps=1, prompt_tokens=20, cached_prompt_tokens=0,
                                           generated_tokens=10), 10.0)  # fmt: skip
    assert found is not None
    assert found["prompt_tokens_per_s"] == 2.0


@dataclass
class Engine:
    stats: Stats | None = None


async def test_lines_come_while_the_engine_is_busy_only(caplog: pytest.LogCaptureFixture) -> None:
    engine = Engine()
    caplog.set_level(logging.INFO)
    task = asyncio.create_task(report_throughput(engine, period_s=0.01))  # type: ignore[arg-type]
    await asyncio.sleep(0.03)
    assert caplog.records == []  # nothing is known before the model is loaded
    engine.stats = IDLE
    await asyncio.sleep(0.05)
    told = len(caplog.records)
    await asyncio.sleep(0.05)
    assert len(caplog.records) == told <= 1
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
