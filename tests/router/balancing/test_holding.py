"""Who waits for a model at zero, in which order they go on, and what the others are told."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from router.fakes import FakeEngine, endpoint_slice, inference_model
from yaie_api.errors import DeadlineExceededError, OverloadedError, UnavailableError, YaieError
from yaie_router.balancing import holding
from yaie_router.balancing.holding import Claim, Holding
from yaie_router.balancing.wake_times import WakeTimes
from yaie_router.discovery.endpoints import Directory
from yaie_router.discovery.objects import Model


class House:
    """A model that sleeps, and requests for it, named by tenant and number."""

    def __init__(self, *, most: int = 8, timeout_s: float = 60.0, seats: int = 1) -> None:
        self.directory = Directory(self._changed)
        self.in_flight: Counter[str] = Counter()
        self.holding = Holding(
            self.directory, most=most, timeout_s=timeout_s, in_flight=self.in_flight
        )
        self.seats = seats
        self.running: list[str] = []
        self.going: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.put()
        self.directory.slices.replace([])

    def _changed(self) -> None:
        self.holding.changed()

    def put(self, **spec: Any) -> None:
        item = inference_model(
            "demo", autoscaling={"min": 0}, engine={"maxNumSeqs": self.seats}, **spec
        )
        self.directory.models.put(item)

    def wake(self, engines: int = 1) -> None:
        these = [FakeEngine(name=f"demo-{n}") for n in range(engines)]
        for engine in these:
            engine.port = 1
        self.directory.slices.put(endpoint_slice("demo", *these))

    @property
    def model(self) -> Model:
        found = self.directory.find("demo")
        assert found is not None
        return found

    async def come(self, *names: str, patience_s: float = 1e9) -> None:
        for name in names:
            self.going[name] = asyncio.Event()
            self.tasks[name] = asyncio.create_task(self._one(name, patience_s))
            await asyncio.sleep(0)
        await settle()

    async def go(self, name: str) -> None:
        self.going[name].set()
        await settle()

    async def error_of(self, name: str) -> YaieError:
        with pytest.raises(YaieError) as raised:
            await self.tasks[name]
        return raised.value

    async def end(self) -> None:
        for event in self.going.values():
            event.set()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)
        assert not self.holding.pending
        assert not self.holding._lines
        assert not self.in_flight.total()

    async def _one(self, name: str, patience_s: float) -> None:
        self.in_flight["demo"] += 1
        try:
            if self.holding.holds(self.model):
                await self.holding.place(self.model, Claim(name[0], 1.0, 10.0, patience_s))
            self.running.append(name)
            await self.going[name].wait()
        finally:
            self.in_flight["demo"] -= 1
            self.holding.left("demo")


async def settle() -> None:
    for _ in range(8):
        await asyncio.sleep(0)


async def test_places_are_given_as_engines_have_them_and_tenants_take_turns() -> None:
    house = House(seats=2)
    await house.come("a1", "a2", "a3", "a4", "b1")
    assert house.holding.pending == {"demo": 5}
    house.wake()
    await settle()
    assert house.running == ["a1", "b1"]
    await house.go("a1")
    assert house.running == ["a1", "b1", "a2"]
    house.wake(engines=2)
    await settle()
    assert house.running == ["a1", "b1", "a2", "a3", "a4"]
    await house.end()


async def test_who_comes_late_does_not_pass_those_who_wait() -> None:
    house = House()
    await house.come("a1", "a2")
    house.wake()
    await house.come("a3")
    await house.go("a1")
    assert house.running == ["a1", "a2"]
    await house.end()
    await house.come("a4")
    assert house.running[-1] == "a4"
    await house.end()


async def test_one_that_leaves_with_its_place_given_passes_it_on() -> None:
    house = House()
    await house.come("a1", "a2")
    house.wake()  # a1 has its place, but has not run yet
    house.tasks["a1"].cancel()
    await settle()
    assert house.running == ["a2"]
    await house.end()


async def test_a_full_queue_makes_room_for_another_tenant() -> None:
    house = House(most=3)
    await house.come("a1", "a2", "a3", "b1", "a4")
    assert isinstance(await house.error_of("a3"), OverloadedError)
    assert isinstance(await house.error_of("a4"), OverloadedError)
    assert house.holding.pending == {"demo": 3}
    house.wake(engines=3)
    await house.end()


async def test_engines_that_go_again_are_waited_for_again() -> None:
    house = House()
    await house.come("a1", "a2")
    house.wake()
    await settle()
    house.directory.slices.replace([])
    await house.go("a1")
    assert house.running == ["a1"]
    house.wake()
    await settle()
    assert house.running == ["a1", "a2"]
    await house.end()


async def test_a_model_that_no_longer_goes_to_zero_holds_nobody() -> None:
    house = House()
    await house.come("a1", "a2")
    item = inference_model("demo", autoscaling={"min": 1})
    house.directory.models.put(item)
    await settle()
    assert house.running == ["a1", "a2"]
    await house.end()


@pytest.mark.parametrize(
    ("timeout_s", "patience_s", "kind"),
    [(0.05, 60.0, UnavailableError), (60.0, 0.05, DeadlineExceededError)],
)
async def test_the_shorter_of_two_limits_ends_the_wait(
    timeout_s: float, patience_s: float, kind: type[YaieError]
) -> None:
    house = House(timeout_s=timeout_s)
    await house.come("a1", patience_s=patience_s)
    assert isinstance(await house.error_of("a1"), kind)
    await house.end()


async def test_all_are_told_that_the_model_is_gone() -> None:
    house = House()
    await house.come("a1", "b1")
    house.directory.models.replace([])
    assert "was deleted" in (await house.error_of("a1")).message
    assert "was deleted" in (await house.error_of("b1")).message
    await house.end()


async def test_what_is_told_names_the_stage_and_then_the_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(holding, "FIRST_TOLD_S", 0.0)
    monkeypatch.setattr(holding, "TOLD_EVERY_S", 0.0)
    house = House()
    told: list[str] = []

    async def tell(stage: str) -> None:
        told.append(stage)

    house.in_flight["demo"] = 1
    asked = asyncio.create_task(house.holding.place(house.model, tell=tell))
    await settle()
    assert set(told) == {"waiting for an engine to be started"}
    house.in_flight["demo"] += 1  # somebody has the only place
    house.wake()
    await settle()
    assert told[-1] == "waiting for a place at an engine"
    house.in_flight["demo"] -= 1
    house.holding.left("demo")
    await asked


def test_who_is_refused_is_told_when_the_model_is_likely_to_be_awake() -> None:
    times = WakeTimes()
    assert times.retry_after_s("demo", 3, waited_s=4.0) == 6.0  # nothing is known yet
    times.woke("demo", 30.0, now_s=0.0)
    assert times.retry_after_s("demo", 3, waited_s=10.0) == 20.0
    assert times.retry_after_s("demo", 3, waited_s=31.0) == 10.0  # slower than the last time
    for now_s in (2.0, 4.0, 6.0):
        times.freed("demo", now_s)
    assert times.retry_after_s("demo", 3, waited_s=None) == pytest.approx(8.0)
    assert times.retry_after_s("demo", 900, waited_s=None) == 60.0
    assert times.retry_after_s("another", 3, waited_s=None) == 1.0
    times.retain({"another"})
    assert times.retry_after_s("demo", 3, waited_s=None) == 1.0
