import asyncio
import threading
import time
from typing import Any

import pytest

from yaie_operator.cluster import ConflictError, UnreachableError
from yaie_operator.watch.leader import Deadline, Leader, LeaderElectionTiming

FAST = LeaderElectionTiming(duration_s=1, deadline_s=0.4, renew_s=0.05)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class FakeLeases:
    """One Lease with the API server's optimistic locking."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.is_away = False
        self.writes = 0

    async def read(self) -> dict[str, Any] | None:
        await self._reach()
        return self.lease

    async def create(self, spec: dict[str, Any]) -> None:
        await self._reach()
        if self.lease is not None:
            raise ConflictError("exists")
        self._write(spec)

    async def update(self, lease: dict[str, Any], spec: dict[str, Any]) -> None:
        await self._reach()
        if self.lease is None or lease["metadata"] != self.lease["metadata"]:
            raise ConflictError("changed")
        self._write(spec)

    async def _reach(self) -> None:
        await asyncio.sleep(0)
        if self.is_away:
            raise UnreachableError("away")

    def _write(self, spec: dict[str, Any]) -> None:
        self.writes += 1
        self.lease = {"metadata": {"resourceVersion": str(self.writes)}, "spec": spec}

    @property
    def holder(self) -> str:
        assert self.lease is not None
        return str(self.lease["spec"]["holderIdentity"])


def leader(leases: FakeLeases, name: str, clock: Clock) -> Leader:
    never = LeaderElectionTiming(duration_s=15, deadline_s=10_000, renew_s=2)
    return Leader(leases, name, timing=never, clock=clock, expired=lambda: None)


async def test_the_first_takes_the_lease_and_the_second_waits() -> None:
    leases, clock = FakeLeases(), Clock()
    a, b = leader(leases, "a", clock), leader(leases, "b", clock)
    assert await a.attempt()
    assert not await b.attempt()
    assert (a.is_leader, b.is_leader, leases.holder) == (True, False, "a")
    await a.release()


async def test_of_two_at_the_same_moment_one_wins() -> None:
    leases, clock = FakeLeases(), Clock()
    both = [leader(leases, name, clock) for name in "ab"]
    assert sorted(await asyncio.gather(*(one.attempt() for one in both))) == [False, True]
    for one in both:
        await one.release()


async def test_a_renewed_lease_never_expires() -> None:
    leases, clock = FakeLeases(), Clock()
    a, b = leader(leases, "a", clock), leader(leases, "b", clock)
    for _ in range(20):
        assert await a.attempt()
        assert not await b.attempt()
        clock.now += 2
    await a.release()


async def test_a_lease_expires_when_it_was_seen_unchanged_for_its_duration() -> None:
    leases, clock = FakeLeases(), Clock()
    a, b = leader(leases, "a", clock), leader(leases, "b", clock)
    assert await a.attempt()
    clock.now += 1000  # nobody has seen it unchanged yet: it may have been renewed just now
    assert not await b.attempt()
    clock.now += 15
    assert not await b.attempt()
    clock.now += 1
    assert await b.attempt()
    assert leases.lease is not None
    assert leases.lease["spec"]["leaseTransitions"] == 1
    await b.release()


async def test_a_released_lease_is_free_at_once() -> None:
    leases, clock = FakeLeases(), Clock()
    a, b = leader(leases, "a", clock), leader(leases, "b", clock)
    assert await a.attempt()
    await a.release()
    assert leases.holder == ""
    assert await b.attempt()
    await b.release()


async def test_a_lease_that_another_holds_is_not_released() -> None:
    leases, clock = FakeLeases(), Clock()
    a, b = leader(leases, "a", clock), leader(leases, "b", clock)
    assert await a.attempt()
    await b.release()
    assert leases.holder == "a"
    await a.release()


async def test_an_unreachable_api_server_gives_no_lease() -> None:
    leases = FakeLeases()
    leases.is_away = True
    assert not await leader(leases, "a", Clock()).attempt()


async def test_a_leader_leads_until_it_is_told_to_stop_and_gives_the_lease_back() -> None:
    leases, stop, expired = FakeLeases(), asyncio.Event(), threading.Event()
    led: list[str] = []

    async def lead(stop: asyncio.Event) -> None:
        led.append(leases.holder)
        await stop.wait()

    running = asyncio.create_task(
        Leader(leases, "a", timing=FAST, expired=expired.set).run(stop, lead)
    )
    await asyncio.sleep(0.3)
    assert leases.writes >= 3
    stop.set()
    await asyncio.wait_for(running, 1)
    assert (led, leases.holder) == (["a"], "")
    await asyncio.sleep(0.5)
    assert not expired.is_set()


async def test_a_standby_that_is_told_to_stop_returns_without_leading() -> None:
    leases, stop = FakeLeases(), asyncio.Event()
    leases.lease = {
        "metadata": {"resourceVersion": "1"},
        "spec": {"holderIdentity": "other", "leaseDurationSeconds": 15},
    }

    async def lead(_: asyncio.Event) -> None:
        pytest.fail("a standby led")

    asyncio.get_running_loop().call_later(0.1, stop.set)
    await asyncio.wait_for(Leader(leases, "a", timing=FAST).run(stop, lead), 1)


async def test_a_leader_that_cannot_renew_expires_before_its_lease_does() -> None:
    leases, stop, expired = FakeLeases(), asyncio.Event(), threading.Event()

    async def lead(stop: asyncio.Event) -> None:
        leases.is_away = True
        await stop.wait()

    started = time.monotonic()
    running = asyncio.create_task(
        Leader(leases, "a", timing=FAST, expired=expired.set).run(stop, lead)
    )
    assert await asyncio.to_thread(expired.wait, 2)
    assert FAST.deadline_s - 0.05 <= time.monotonic() - started < FAST.duration_s
    stop.set()
    await running


async def test_a_blocked_event_loop_does_not_outlive_the_lease() -> None:
    leases, stop = FakeLeases(), asyncio.Event()
    expired: list[float] = []

    async def lead(_: asyncio.Event) -> None:
        time.sleep(0.7)  # noqa: ASYNC251 - the defect that this test is about

    started = time.monotonic()
    await Leader(leases, "a", timing=FAST, expired=lambda: expired.append(time.monotonic())).run(
        stop, lead
    )
    assert expired
    assert expired[0] - started < FAST.duration_s


def test_a_moved_deadline_does_not_expire_and_a_disarmed_one_never() -> None:
    expired = threading.Event()
    deadline = Deadline(expired.set, time.monotonic)
    for _ in range(5):
        deadline.move(time.monotonic() + 0.1)
        time.sleep(0.05)
    assert not expired.is_set()
    deadline.disarm()
    assert not expired.wait(0.2)
