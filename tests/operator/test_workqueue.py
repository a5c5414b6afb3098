import asyncio
import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from yaie_operator.watch.workqueue import ShutDownError, WorkQueue


def queue(**rest: float) -> WorkQueue:
    return WorkQueue(retry_base_s=rest.get("base", 0.01), retry_max_s=rest.get("most", 0.1))


async def test_keys_come_in_order_and_each_once() -> None:
    q = queue()
    for key in ("a", "b", "a"):
        q.add(key)
    assert [await q.get(), await q.get()] == ["a", "b"]
    assert len(q) == 0


async def test_a_key_in_hand_is_not_given_to_a_second_worker() -> None:
    q = queue()
    q.add("a")
    key = await q.get()
    q.add("a")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(q.get(), 0.02)
    q.done(key)
    assert await asyncio.wait_for(q.get(), 1) == "a"


async def test_what_comes_during_a_keys_rest_makes_one_more_pass_after_it() -> None:
    q = WorkQueue(retry_base_s=0.01, retry_max_s=0.1, rest_s=0.1)
    loop = asyncio.get_running_loop()
    q.add("a")
    q.done(await q.get())
    done = loop.time()
    for _ in range(12):
        q.add("a")
    q.add("b")
    assert [await q.get(), len(q)] == ["b", 0]
    assert await asyncio.wait_for(q.get(), 1) == "a"
    assert loop.time() - done >= 0.09
    q.done("a")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(q.get(), 0.2)
    q.close()


async def test_a_queue_that_is_shut_down_ends_who_waits_and_hands_out_no_key() -> None:
    q = queue()
    waiting = [asyncio.create_task(q.get()) for _ in range(3)]
    await asyncio.sleep(0)
    q.shut_down()
    ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(error) for error in ended] == [ShutDownError] * 3
    q.add("a")
    with pytest.raises(ShutDownError):
        await q.get()


async def test_a_key_that_failed_waits_for_its_back_off_and_takes_no_rest() -> None:
    q = WorkQueue(retry_base_s=0.01, retry_max_s=0.1, rest_s=5.0)
    q.add("a")
    q.retry(await q.get())
    q.done("a")
    assert await asyncio.wait_for(q.get(), 1) == "a"


async def test_a_waiting_worker_wakes_when_a_key_is_added() -> None:
    q = queue()
    worker = asyncio.create_task(q.get())
    await asyncio.sleep(0)
    q.add("a")
    assert await asyncio.wait_for(worker, 1) == "a"


async def test_a_delayed_key_keeps_its_earliest_time() -> None:
    q = queue()
    loop = asyncio.get_running_loop()
    started = loop.time()
    q.add_after("a", 0.05)
    q.add_after("a", 5.0)
    await asyncio.wait_for(q.get(), 1)
    assert 0.04 <= loop.time() - started < 0.5
    q.done("a")
    q.add_after("b", 5.0)
    q.add_after("b", 0.01)
    assert await asyncio.wait_for(q.get(), 1) == "b"


async def test_the_back_off_doubles_up_to_its_limit_and_forgets_success() -> None:
    q = queue(base=0.1, most=0.5)
    assert [q.retry("a") for _ in range(5)] == [0.1, 0.2, 0.4, 0.5, 0.5]
    q.forget("a")
    assert q.retry("a") == 0.1
    q.close()


async def test_a_closed_queue_leaves_no_timer() -> None:
    q = queue()
    q.add_after("a", 0.01)
    q.close()
    await asyncio.sleep(0.03)
    assert len(q) == 0


async def test_many_workers_never_hold_the_same_key() -> None:
    q, held, rng = queue(), set[str](), random.Random(1)
    handled: list[str] = []

    async def work() -> None:
        while True:
            key = await q.get()
            assert key not in held
            held.add(key)
            await asyncio.sleep(rng.random() / 1000)
            held.remove(key)
            handled.append(key)
            q.done(key)

    workers = [asyncio.create_task(work()) for _ in range(4)]
    for _ in range(300):
        q.add(rng.choice("abc"))
        q.check()
        await asyncio.sleep(rng.random() / 2000)
    while len(q) or held:  # noqa: ASYNC110 - a test polls
        await asyncio.sleep(0.001)
    for worker in workers:
        worker.cancel()
    results = await asyncio.gather(*workers, return_exceptions=True)
    assert all(isinstance(result, asyncio.CancelledError) for result in results)
    assert set(handled) == set("abc")


class QueueMachine(RuleBasedStateMachine):
    """Any order of add, take and done keeps the queue whole and loses no key."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = queue()
        self.held: list[str] = []
        self.owed: set[str] = set()

    @rule(key=st.sampled_from("abcd"))
    def add(self, key: str) -> None:
        self.queue.add(key)
        self.owed.add(key)

    @precondition(lambda self: len(self.queue))
    @rule()
    def take(self) -> None:
        key = asyncio.run(self.queue.get())
        assert key not in self.held
        self.held.append(key)
        self.owed.remove(key)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(self.held))
        self.held.remove(key)
        self.queue.done(key)

    @invariant()
    def is_whole(self) -> None:
        self.queue.check()
        assert len(self.queue) == len(self.owed - set(self.held))


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
