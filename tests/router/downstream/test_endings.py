"""How many requests are wound up in one turn of the event loop."""

import asyncio
from functools import partial

from yaie_router.downstream.endings import MOST_AT_A_TIME, Endings


async def test_one_request_ends_at_once() -> None:
    endings, ended = Endings(), list[int]()
    for number in range(3):
        endings.add(partial(ended.append, number))
        assert ended[-1] == number


async def test_requests_that_end_together_take_turns_in_their_order() -> None:
    endings, ended = Endings(), list[int]()
    count = 5 * MOST_AT_A_TIME + 3
    for number in range(count):
        endings.add(partial(ended.append, number))
    before = 0
    for _ in range(6):
        assert len(ended) - before <= MOST_AT_A_TIME
        before = len(ended)
        await asyncio.sleep(0)
    assert ended == list(range(count))


async def test_what_ends_later_waits_behind_what_waits() -> None:
    endings, ended = Endings(), list[int]()
    for number in range(MOST_AT_A_TIME + 2):
        endings.add(partial(ended.append, number))
    await asyncio.sleep(0)
    endings.add(partial(ended.append, -1))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert ended == [*range(MOST_AT_A_TIME + 2), -1]


async def test_a_quiet_time_gives_the_whole_allowance_back() -> None:
    endings, ended = Endings(), list[int]()
    for _ in range(3):
        for number in range(MOST_AT_A_TIME):
            endings.add(partial(ended.append, number))
        assert ended == list(range(MOST_AT_A_TIME))
        ended.clear()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
