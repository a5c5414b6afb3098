"""Turns by tokens: what always holds, whoever comes and goes."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from yaie_router.tenants.fair_queue import FairQueue, QueueFullError


def drain(queue: FairQueue[str], most: int = 1000) -> str:
    """The first letters of what comes out, in order."""
    found = []
    while len(found) < most and (item := queue.pop()) is not None:
        queue.check()
        found.append(item[0])
    return "".join(found)


def test_tenants_take_turns_and_each_keeps_its_order() -> None:
    queue: FairQueue[str] = FairQueue(100)
    for index in range(4):
        queue.push("a", 1, 10, f"a{index}")
    queue.push("b", 1, 10, "b0")
    queue.push("b", 1, 10, "b1")
    assert [queue.pop() for _ in range(7)] == ["a0", "b0", "a1", "b1", "a2", "a3", None]


def test_turns_are_by_tokens_and_by_weight() -> None:
    queue: FairQueue[str] = FairQueue(100)
    for _ in range(12):
        queue.push("a", 1, 300, "a")
        queue.push("b", 1, 100, "b")
    assert Counter(drain(queue, 12)) == {"a": 3, "b": 9}
    queue = FairQueue(100)
    for _ in range(12):
        queue.push("a", 3, 100, "a")
        queue.push("b", 1, 100, "b")
    assert Counter(drain(queue, 12)) == {"a": 9, "b": 3}


def test_who_comes_late_is_next_but_owns_no_past() -> None:
    queue: FairQueue[str] = FairQueue(100)
    for _ in range(20):
        queue.push("a", 1, 10, "a")
    assert drain(queue, 10) == "a" * 10
    for _ in range(5):
        queue.push("b", 1, 10, "b")
    assert drain(queue, 6) in ("bababa", "ababab")


def test_what_was_counted_too_low_is_made_up_for() -> None:
    queue: FairQueue[str] = FairQueue(100)
    for _ in range(10):
        queue.push("a", 1, 10, "a")
        queue.push("b", 1, 10, "b")
    assert queue.pop() == "a"
    queue.correct("a", 40)
    assert drain(queue, 6) == "bbbbba"


def test_a_full_queue_displaces_the_newest_of_the_largest_tenant() -> None:
    queue: FairQueue[str] = FairQueue(3)
    for index in range(3):
        assert queue.push("a", 1, 10, f"a{index}") is None
    with pytest.raises(QueueFullError):
        queue.push("a", 1, 10, "a3")
    assert queue.push("b", 1, 10, "b0") == "a2"
    with pytest.raises(QueueFullError):
        queue.push("b", 1, 10, "b1")
    assert queue.depth("a") == 2
    queue.check()


@settings(max_examples=60)
@given(
    st.lists(st.floats(1, 500), min_size=30, max_size=60),
    st.lists(st.floats(1, 500), min_size=30, max_size=60),
    st.floats(0.1, 10),
    st.integers(1, 29),
)
def test_of_two_that_always_wait_neither_gets_ahead_by_more_than_a_request_each(
    a: list[float], b: list[float], weight: float, served: int
) -> None:
    """The bound of start-time fair queueing."""
    queue: FairQueue[tuple[str, float, int]] = FairQueue(1000)
    for index, cost in enumerate(a):
        queue.push("a", weight, cost, ("a", cost, index))
    for index, cost in enumerate(b):
        queue.push("b", 1, cost, ("b", cost, index))
    work = {"a": 0.0, "b": 0.0}
    for _ in range(served):
        item = queue.pop()
        assert item is not None
        work[item[0]] += item[1]
        assert abs(work["a"] / weight - work["b"]) <= max(a) / weight + max(b) + 1e-6


class Machine(RuleBasedStateMachine):
    """Any sequence of events; what waits is what came and has not left."""

    def __init__(self) -> None:
        super().__init__()
        self.queue: FairQueue[tuple[str, int]] = FairQueue(8)
        self.waiting: dict[tuple[str, int], str] = {}
        self.count = 0

    @rule(tenant=st.sampled_from("abc"), cost=st.floats(0, 100), weight=st.floats(0.1, 5))
    def push(self, tenant: str, cost: float, weight: float) -> None:
        self.count += 1
        item = (tenant, self.count)
        try:
            displaced = self.queue.push(tenant, weight, cost, item)
        except QueueFullError:
            assert len(self.waiting) == 8
            return
        self.waiting[item] = tenant
        if displaced is not None:
            assert self.waiting.pop(displaced) != tenant

    @rule()
    def pop(self) -> None:
        item = self.queue.pop()
        assert (item is None) == (not self.waiting)
        if item is not None:
            ahead = [one for one in self.waiting if one[0] == item[0] and one[1] < item[1]]
            assert not ahead
            del self.waiting[item]

    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        if self.waiting:
            item = data.draw(st.sampled_from(sorted(self.waiting)))
            assert self.queue.remove(self.waiting.pop(item), item)
            assert not self.queue.remove(item[0], item)

    @rule(tenant=st.sampled_from("abcd"), tokens=st.floats(-500, 500))
    def correct(self, tenant: str, tokens: float) -> None:
        self.queue.correct(tenant, tokens)

    @rule(tenant=st.sampled_from("abc"), cost=st.floats(0, 100))
    def pass_by(self, tenant: str, cost: float) -> None:
        if not self.waiting:
            self.queue.passed(tenant, 1.0, cost)

    @invariant()
    def holds(self) -> None:
        self.queue.check()
        assert len(self.queue) == len(self.waiting)


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
