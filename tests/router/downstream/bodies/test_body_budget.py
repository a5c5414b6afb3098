"""Bodies take bounded memory together, and small ones go on while large ones take all of it."""

import asyncio
import functools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.conftest import Stack, StackMaker
from router.fakes import FakeEngine, event, inference_model
from yaie_api.errors import OverloadedError
from yaie_router.downstream.bodies.body_budget import FREE_BYTES, BodyBudget, BodyLease

LARGE = FREE_BYTES + 1000
ASLEEP: dict[str, Any] = {"replicas": 0, "autoscaling": {"min": 0, "max": 1}}


def test_what_is_free_does_not_count_and_the_rest_is_given_back() -> None:
    budget = BodyBudget(most_bytes=4000, most_unfinished=2)
    with budget.begin() as lease:
        lease.grow(FREE_BYTES)
        assert budget.kept_bytes == 0
        lease.grow(1000)
        assert (budget.kept_bytes, budget.unfinished_bytes) == (1000, 1000)
        lease.finish()
        assert (budget.kept_bytes, budget.unfinished_bytes, budget.unfinished) == (1000, 0, 0)
        lease.release()
    assert budget == BodyBudget(most_bytes=4000, most_unfinished=2)
    assert budget.kept_bytes == 0


def test_unfinished_bodies_have_a_quarter_of_the_bytes() -> None:
    budget = BodyBudget(most_bytes=4000)
    with budget.begin() as one, budget.begin() as two:
        one.grow(LARGE)
        with pytest.raises(OverloadedError):
            two.grow(LARGE)
    with budget.begin() as one, budget.begin() as two:
        one.grow(LARGE)
        one.finish()
        two.grow(LARGE)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("gfr"), st.integers(0, 200_000))))
def test_whatever_happens_everything_is_given_back(
    actions: list[tuple[int, str, int]],
) -> None:
    budget = BodyBudget(most_bytes=500_000)
    leases: dict[int, BodyLease] = {}
    for number, action, size in actions:
        lease = leases.get(number) or leases.setdefault(number, budget.begin())
        if action == "g" and not lease._is_finished:
            try:
                lease.grow(size)
            except OverloadedError:
                lease.release()
        elif action == "f":
            lease.finish()
        elif action == "r":
            lease.release()
        assert 0 <= budget.unfinished_bytes <= budget.kept_bytes <= budget.most_bytes
    for lease in leases.values():
        lease.release()
    assert (budget.kept_bytes, budget.unfinished_bytes, budget.unfinished) == (0, 0, 0)


def body_of(size: int) -> dict[str, Any]:
    return {"model": "demo", "messages": [{"role": "user", "content": "x" * size}]}


async def test_held_bodies_have_a_total_and_small_requests_still_wait(
    start_router: StackMaker,
) -> None:
    stack = await start_router(max_buffered_bytes=2_000_000)
    await stack.api.put(inference_model("demo", **ASLEEP))
    await stack.until(lambda: stack.knows("demo", "demo", 0))

    async def ask(size: int) -> int:
        async with stack.client.post("/v1/chat/completions", json=body_of(size)) as response:
            return response.status

    held = []
    for number in range(1, 6):
        held.append(asyncio.create_task(ask(400_000)))
        await stack.until(functools.partial(pending, stack, number))
    assert await ask(400_000) == 429
    held.append(asyncio.create_task(ask(1000)))
    await stack.until(lambda: pending(stack, 6))
    for task in held:
        task.cancel()
    await asyncio.gather(*held, return_exceptions=True)


async def test_a_body_is_let_go_when_its_answer_begins(start_router: StackMaker) -> None:
    stack = await start_router(max_buffered_bytes=2_000_000)
    engine = FakeEngine("pod-a", pieces=[event("a"), event("b")], hold_at=1)
    await stack.serve("demo", engine)
    answers = []
    for _ in range(10):
        answer = await stack.client.post(
            "/v1/chat/completions", json=body_of(400_000) | {"stream": True}
        )
        assert answer.status == 200
        answers.append(answer)
    engine.resume.set()
    for answer in answers:
        await answer.read()


async def test_more_unfinished_bodies_than_may_be_are_refused(start_router: StackMaker) -> None:
    stack = await start_router(max_unfinished_bodies=3)
    await stack.serve("demo", FakeEngine("pod-a"))
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9999\r\n\r\n{"
    writers = []
    for _ in range(3):
        _, writer = await asyncio.open_connection("127.0.0.1", stack.config.port)
        writer.write(head)
        writers.append(writer)

    async def is_full() -> bool:
        async with stack.chat() as response:
            return bool(response.status == 429)

    await stack.until(is_full)
    for writer in writers:
        writer.close()

    async def has_room() -> bool:
        return not await is_full()

    await stack.until(has_room)


async def pending(stack: Stack, number: int) -> bool:
    return await stack.metric('yaie_router_pending_requests{model="demo"}') == number
