"""Requests for a model that is scaled to zero wait for its first engine; others do not wait."""

import asyncio
from typing import Any

from router.conftest import Stack, StackMaker
from router.fakes import DONE, FakeEngine, endpoint_slice, event, inference_model

ASLEEP: dict[str, Any] = {
    "replicas": 0,
    "autoscaling": {"min": 0, "max": 2, "idleSeconds": 60, "target": {"activeRequests": 8}},
}


async def put_asleep(stack: Stack, **spec: Any) -> None:
    await stack.api.put(inference_model("demo", **{**ASLEEP, **spec}))
    await stack.until(lambda: stack.knows("demo", "demo", 0))


async def ask(stack: Stack) -> tuple[int, str]:
    async with stack.chat() as response:
        return response.status, await response.text()


async def pending(stack: Stack, number: float) -> bool:
    return await stack.metric('yaie_router_pending_requests{model="demo"}') == number


async def test_requests_wait_for_the_first_engine_and_are_answered(stack: Stack) -> None:
    await put_asleep(stack)
    asked = [asyncio.create_task(ask(stack)) for _ in range(5)]
    await stack.until(lambda: pending(stack, 5))
    assert await stack.metric('yaie_router_requests_in_flight{model="demo"}') == 5
    engine = await FakeEngine(pieces=[event("awake"), DONE]).start()
    stack.engines.append(engine)
    await stack.api.put(endpoint_slice("demo", engine))
    answers = await asyncio.gather(*asked)
    assert {status for status, _ in answers} == {200}
    assert all("awake" in text for _, text in answers)
    assert await pending(stack, 0)


async def test_a_client_that_leaves_waits_no_more(stack: Stack) -> None:
    await put_asleep(stack)
    asked = asyncio.create_task(ask(stack))
    await stack.until(lambda: pending(stack, 1))
    asked.cancel()
    await stack.until(lambda: pending(stack, 0))


async def test_a_suspended_model_says_so_at_once(stack: Stack) -> None:
    await put_asleep(stack, suspend=True)
    async with stack.chat() as response:
        error = (await response.json())["error"]
        assert (response.status, error["code"]) == (503, "model_suspended")
    assert error["message"] == (
        "Model 'demo' is suspended: spec.suspend is true. No request starts it."
    )


async def test_suspending_ends_the_wait(stack: Stack) -> None:
    await put_asleep(stack)
    asked = asyncio.create_task(ask(stack))
    await stack.until(lambda: pending(stack, 1))
    await stack.api.put(inference_model("demo", **ASLEEP, suspend=True))
    status, text = await asked
    assert status == 503
    assert "model_suspended" in text


async def test_deleting_ends_the_wait(stack: Stack) -> None:
    await put_asleep(stack)
    asked = asyncio.create_task(ask(stack))
    await stack.until(lambda: pending(stack, 1))
    await stack.api.delete("inferencemodels", "demo")
    status, text = await asked
    assert status == 503
    assert "was deleted while it started" in text


async def test_a_model_with_a_minimum_of_one_is_not_waited_for(stack: Stack) -> None:
    autoscaling = {"min": 1, "max": 2, "target": {"activeRequests": 8}}
    await put_asleep(stack, replicas=1, autoscaling=autoscaling)
    assert (await ask(stack))[0] == 503


async def test_more_than_may_wait_get_429(start_router: StackMaker) -> None:
    stack = await start_router(max_pending=2)
    await put_asleep(stack)
    asked = [asyncio.create_task(ask(stack)) for _ in range(2)]
    await stack.until(lambda: pending(stack, 2))
    async with stack.chat() as response:
        assert response.status == 429
        assert response.headers["retry-after"] == "10"
    for task in asked:
        task.cancel()


async def test_the_wait_ends_with_what_is_awaited(start_router: StackMaker) -> None:
    stack = await start_router(pending_timeout_s=0.2)
    await put_asleep(stack)
    status, text = await ask(stack)
    assert status == 503
    assert "did not start within 0.2 s: it has 0 replicas." in text
