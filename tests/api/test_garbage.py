"""Full garbage collections wait for an idle moment, but not for ever."""

import asyncio
import gc
import weakref

import pytest

from yaie_api import garbage


class _Knot:
    """Refers to itself: only the garbage collector frees it."""

    def __init__(self) -> None:
        self.itself = self


@pytest.mark.parametrize(
    ("waiting", "since_s", "idle", "due"),
    [
        (garbage.DUE, 0.0, True, True),
        (garbage.DUE - 1, 1000.0, True, False),
        (garbage.DUE, garbage.LONGEST_S - 1, False, False),
        (garbage.DUE, garbage.LONGEST_S, False, True),
        (garbage.DUE - 1, garbage.LONGEST_S, False, False),
    ],
)
def test_a_collection_is_due_when_there_is_work_and_nobody_waits(
    waiting: int, since_s: float, *, idle: bool, due: bool
) -> None:
    assert garbage.is_due(waiting, since_s, idle=idle) is due


@pytest.mark.parametrize("idle", [True, False])
def test_old_garbage_is_collected_at_an_idle_moment_and_only_then(
    monkeypatch: pytest.MonkeyPatch, *, idle: bool
) -> None:
    monkeypatch.setattr(garbage, "PERIOD_S", 0.01)
    before = gc.get_threshold()

    async def run() -> bool:
        gc.collect()
        collecting = asyncio.ensure_future(garbage.collect_when_idle(lambda: idle))
        await asyncio.sleep(0)
        knot = _Knot()
        gone = weakref.ref(knot)
        gc.collect(1)  # it is old from now on
        del knot
        for _ in range(garbage.DUE):
            gc.collect(1)
        assert gone() is not None, "the middle generation does not reach it"
        await asyncio.sleep(0.1)
        collecting.cancel()
        return gone() is None

    assert asyncio.run(run()) is idle
    assert gc.get_threshold() == before


def test_a_process_that_looks_rarely_still_finds_old_garbage() -> None:
    before = gc.get_threshold()
    try:
        garbage.look_rarely()
        young, middle, full = gc.get_threshold()
        assert (young >= 10_000, full) == (True, garbage.DUE)
        knot = weakref.ref(_Knot())
        kept: list[list[int]] = [[] for _ in range(young * (middle + 2))]
        assert kept
        assert knot() is None
    finally:
        gc.set_threshold(*before)
