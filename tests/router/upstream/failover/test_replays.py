"""Replays are counted, and those that wait look again when one ends."""

import asyncio

from yaie_router.upstream.failover.replays import Replays


async def test_a_turn_ends_once() -> None:
    replays = Replays()
    one, two = replays.begin("a"), replays.begin("a")
    assert replays.counts == {"a": 2}
    one.end()
    one.end()
    assert replays.counts == {"a": 1}
    two.end()
    assert not replays.counts


async def test_who_waits_is_woken_by_an_end() -> None:
    replays = Replays()
    turn = replays.begin("a")
    waiting = [asyncio.create_task(replays.change()) for _ in range(3)]
    await asyncio.sleep(0)
    turn.end()
    await asyncio.wait_for(asyncio.gather(*waiting), 5)


async def test_who_leaves_is_forgotten() -> None:
    replays = Replays()
    waiting = asyncio.create_task(replays.change())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert not replays._waiting
