"""Waiting for a seat: who gets it, who is told to come back, and that none is ever lost."""

import asyncio

import pytest

from yaie_api.errors import OverloadedError, UnavailableError
from yaie_router.tenants.seats import Place, Seats


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


class Crowd:
    """Requests that hold their seat until they are told to go."""

    def __init__(self, *, seats: int = 1, most: int = 8, timeout_s: float = 60.0) -> None:
        self.clock = Clock()
        self.seats = Seats(self.clock, most=most, timeout_s=timeout_s)
        self.seats.resize(seats)
        self.seated: list[str] = []
        self.going: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def come(self, *names: str) -> None:
        for name in names:
            self.going[name] = asyncio.Event()
            self.tasks[name] = asyncio.create_task(self._one(name))
            await settle()

    async def go(self, name: str) -> None:
        self.going[name].set()
        await settle()

    async def end(self) -> None:
        for event in self.going.values():
            event.set()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)
        assert (self.seats._running, self.seats.waiting) == (0, 0)

    async def _one(self, name: str) -> None:
        place = Place(name[0], 1.0, 10.0)
        await self.seats.take(place)
        try:
            self.seated.append(name)
            await self.going[name].wait()
        finally:
            self.seats.leave(place)


async def test_a_free_seat_is_had_at_once_and_then_tenants_take_turns() -> None:
    crowd = Crowd(seats=2)
    await crowd.come("a1", "a2", "a3", "a4", "b1")
    assert crowd.seated == ["a1", "a2"]
    await crowd.go("a1")
    await crowd.go("a2")
    assert crowd.seated == ["a1", "a2", "b1", "a3"]
    await crowd.end()


async def test_more_engines_seat_those_who_wait() -> None:
    crowd = Crowd(seats=0)
    await crowd.come("a1", "a2", "a3")
    assert not crowd.seated
    crowd.seats.resize(2)
    await settle()
    assert crowd.seated == ["a1", "a2"]
    crowd.seats.resize(1)
    await crowd.go("a1")
    assert crowd.seated == ["a1", "a2"]
    await crowd.end()


async def test_a_full_queue_refuses_the_tenant_that_fills_it() -> None:
    crowd = Crowd(most=2)
    await crowd.come("a1", "a2", "a3", "a4", "b1")
    with pytest.raises(OverloadedError, match="All engines are busy") as refused:
        await crowd.tasks["a4"]
    assert refused.value.retry_after_s == pytest.approx(3)
    with pytest.raises(OverloadedError):
        await crowd.tasks["a3"]
    await crowd.go("a1")
    assert crowd.seated == ["a1", "b1"]
    await crowd.end()


async def test_when_to_come_back_is_measured_by_how_fast_seats_get_free() -> None:
    crowd = Crowd(most=50)
    await crowd.come(*(f"a{index}" for index in range(51)))
    for index in range(30):
        crowd.clock.now_s += 0.2
        await crowd.go(f"a{index}")
    assert crowd.seats.retry_after_s() == pytest.approx(21 * 0.2, rel=0.2)
    await crowd.end()


async def test_who_waits_too_long_is_told_and_loses_no_seat() -> None:
    crowd = Crowd(timeout_s=0.02)
    await crowd.come("a1", "b1")
    with pytest.raises(UnavailableError, match="busy for"):
        await crowd.tasks["b1"]
    await crowd.come("c1")
    await crowd.go("a1")
    assert crowd.seated == ["a1", "c1"]
    await crowd.end()


@pytest.mark.parametrize("at_once", [False, True])
async def test_a_client_that_leaves_gives_up_its_turn_or_its_seat(at_once: bool) -> None:
    """Even in the moment in which it was given one."""
    crowd = Crowd()
    await crowd.come("a1", "b1", "c1")
    if at_once:
        crowd.going["a1"].set()
        await asyncio.sleep(0)
    crowd.tasks["b1"].cancel()
    await settle()
    await crowd.go("a1")
    assert crowd.seated == ["a1", "c1"]
    await crowd.end()
