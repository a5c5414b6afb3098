"""Deadlines are measured by tokens; a queue is not a hang."""

import asyncio

import pytest

from router.conftest import GENEROUS_S
from yaie_router.discovery.objects import Endpoint
from yaie_router.health.watchdog import Wait, WaitEndedError, Watchdog, is_overdue, suspects

ENGINE = Endpoint("pod-a", "127.0.0.1", 8000)


def wait(**more: object) -> Wait:
    return Wait("demo", ENGINE, limit_s=30.0, most_s=300.0, since_s=100.0, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("progress_s", "now_s", "overdue"),
    [
        (0.0, 129.9, False),
        (0.0, 130.0, True),
        (129.0, 150.0, False),  # the engine gives tokens to others: this one is queued
        (129.0, 159.0, True),
        (399.0, 399.9, False),
        (399.0, 400.0, True),  # but not for ever
    ],
)
def test_a_wait_ends_when_its_engine_gives_tokens_to_nobody(
    progress_s: float, now_s: float, overdue: bool
) -> None:
    assert is_overdue(wait(), progress_s, now_s) is overdue


def test_the_time_in_which_a_client_does_not_read_is_not_the_engine_s() -> None:
    assert not is_overdue(wait(is_paused=True), 0.0, 10_000.0)
    assert suspects([wait(is_paused=True)], {}, 10_000.0, 5.0) == set()


def test_a_silent_engine_is_a_suspect_and_one_with_tokens_is_not() -> None:
    assert suspects([wait()], {}, 104.9, 5.0) == set()
    assert suspects([wait()], {}, 105.0, 5.0) == {ENGINE}
    assert suspects([wait()], {"pod-a": 104.0}, 106.0, 5.0) == set()


async def test_an_ended_wait_raises_where_it_waits_and_leaves_no_trace() -> None:
    now_s = 0.0
    watchdog = Watchdog(lambda: now_s)
    one = Wait("demo", ENGINE, 1.0, 1.0)

    async def hang() -> None:
        async with watchdog.waiting(one):
            await asyncio.Event().wait()

    task = asyncio.create_task(hang())
    await asyncio.sleep(0)
    watchdog.end_overdue()
    assert one.ended is None
    now_s = 1.0
    watchdog.end_overdue()
    with pytest.raises(WaitEndedError, match="timeout"):
        await asyncio.wait_for(task, GENEROUS_S)
    assert watchdog.all() == []


async def test_a_lost_endpoint_frees_only_those_whose_answer_has_not_begun() -> None:
    watchdog = Watchdog(lambda: 0.0)
    waits = [Wait("demo", ENGINE, 1.0, 1.0), Wait("demo", ENGINE, 1.0, 1.0, is_committed=True)]

    async def hang(one: Wait) -> None:
        async with watchdog.waiting(one):
            await asyncio.Event().wait()

    tasks = [asyncio.create_task(hang(one)) for one in waits]
    await asyncio.sleep(0)
    watchdog.release("pod-a")
    with pytest.raises(WaitEndedError, match="lost"):
        await asyncio.wait_for(tasks[0], GENEROUS_S)
    assert watchdog.all() == [waits[1]]
    tasks[1].cancel()
    with pytest.raises(asyncio.CancelledError):  # a client that leaves is no ended wait
        await tasks[1]


async def test_streams_that_stall_leave_an_ejected_engine_if_they_can_go_on_elsewhere() -> None:
    now_s = 100.0
    watchdog = Watchdog(lambda: now_s)
    left: list[str] = []

    async def waits(name: str, **more: object) -> None:
        try:
            async with watchdog.waiting(wait(is_committed=True, **more)):
                await asyncio.Event().wait()
        except WaitEndedError as ended:
            left.append(f"{name} {ended.end}")

    tasks = [
        asyncio.create_task(waits("stalled", is_resumable=True)),
        asyncio.create_task(waits("bound")),
        asyncio.create_task(waits("unread", is_resumable=True, is_paused=True)),
    ]
    await asyncio.sleep(0)
    watchdog.release_stalled("pod-a", 1.0)
    await asyncio.sleep(0.01)
    assert left == []
    now_s = 101.0
    watchdog.release_stalled("pod-a", 1.0)
    async with asyncio.timeout(GENEROUS_S):
        await tasks[0]
    assert left == ["stalled lost"]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
