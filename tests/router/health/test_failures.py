"""Which failures of one engine clients see, over real sockets."""

import asyncio
import errno
from typing import Any

import pytest

from router.conftest import GENEROUS_S, Stack, StackMaker
from router.fakes import DONE, FakeEngine, endpoint_slice, event
from router.upstream.delivery.test_progress import PING, ROLE
from router.upstream.test_router_proxy import ejections, events_of
from yaie_router.upstream.http1.pool import Pool

QUICK: dict[str, Any] = {"first_token_timeout_s": 0.6, "inter_token_timeout_s": 0.6}
ROUND_ROBIN = {"policy": "RoundRobin"}


async def served(stack: Stack, times: int = 2) -> set[str]:
    """Ask so many times at once; return the engines of the answers, all of which must be whole."""

    async def one(index: int) -> str:
        async with stack.chat(f"hi {index}") as response:
            assert (await response.read()).endswith(event("b") + DONE)
            return str(response.headers["x-yaie-endpoint"])

    return set(await asyncio.gather(*(one(index) for index in range(times))))


@pytest.mark.parametrize(
    "fault",
    [
        {"stall_before_head": True},
        {"stall_after_head": True},
        {"pieces": [PING] * 1000, "itl_s": 0.05},
        {"pieces": [ROLE, *[PING] * 1000], "itl_s": 0.05},
    ],
    ids=["frozen before the head", "frozen after the head", "heartbeats", "a role and heartbeats"],
)
async def test_without_a_first_token_in_time_another_engine_is_asked(
    start_router: StackMaker, fault: dict[str, Any]
) -> None:
    stack = await start_router(**QUICK)
    await stack.serve("demo", FakeEngine("bad", **fault), FakeEngine("good"), routing=ROUND_ROBIN)
    async with asyncio.timeout(GENEROUS_S):
        assert await served(stack, 4) == {"good"}
    assert await stack.metric('yaie_router_retries_total{cause="timeout",model="demo"}') == 2


async def test_a_long_prompt_has_more_time(start_router: StackMaker) -> None:
    stack = await start_router(**QUICK, prompt_bytes_per_s=100.0)
    slow = FakeEngine("pod-a", ttft_s=1.5)
    await stack.serve("demo", slow, routing=ROUND_ROBIN)
    async with stack.chat("x" * 400) as response:
        assert response.status == 200
        assert (await response.read()).endswith(DONE)


async def test_an_answer_that_does_not_stream_may_take_long(start_router: StackMaker) -> None:
    stack = await start_router(**QUICK)
    whole = {"content_type": "application/json", "pieces": [b"{}"], "content_length": 2}
    await stack.serve("demo", FakeEngine("pod-a", ttft_s=1.5, **whole))
    async with stack.chat(stream=False) as response:
        assert (response.status, await response.read()) == (200, b"{}")


async def test_heartbeats_do_not_keep_a_stream_alive_that_stopped(start_router: StackMaker) -> None:
    stack = await start_router(**QUICK)
    pieces = [event("a"), *[PING] * 1000]
    await stack.serve("demo", FakeEngine("pod-a", pieces=pieces, itl_s=0.05))
    async with asyncio.timeout(GENEROUS_S), stack.chat() as response:
        raw = (await response.read()).replace(PING, b"")
    first, error = events_of(raw)
    assert first["choices"][0]["delta"]["content"] == "a"
    assert error["error"]["code"] == "engine_stopped"


async def test_a_queue_is_not_a_hang(start_router: StackMaker) -> None:
    stack = await start_router(**QUICK)
    engine = FakeEngine("pod-a", pieces=[event("a")] * 30 + [event("b"), DONE], itl_s=0.05)
    await stack.serve("demo", engine)

    async def stream() -> bytes:
        async with stack.chat() as response:
            return bytes(await response.read())

    running = asyncio.create_task(stream())
    await stack.until(lambda: _truth(bool(engine.received)))
    engine.ttft_s = 1.2  # the next one waits longer than its deadline, behind the first
    assert (await stream()).endswith(DONE)
    assert (await running).endswith(DONE)


async def test_streams_that_break_eject_although_they_begin(stack: Stack) -> None:
    bad = FakeEngine("bad", pieces=[event("a"), event("b")], reset_after_pieces=1)
    await stack.serve("demo", bad, FakeEngine("good"), routing=ROUND_ROBIN)
    broken = 0
    for _ in range(12):
        async with stack.chat() as response:
            broken += b"engine_stopped" in await response.read()
    assert 3 <= broken <= 4  # the threshold, and perhaps one trial
    assert await stack.metric('yaie_router_ejected_endpoints{model="demo"}') == 1


async def test_a_frozen_suspect_is_ejected_by_its_probes_and_frees_those_that_wait(
    start_router: StackMaker,
) -> None:
    """Long before the deadline, and for answers that do not stream, too."""
    stack = await start_router(suspect_after_s=0.3)
    bad = FakeEngine("bad", stall_before_head=True, ready=None)
    good = FakeEngine("good")
    await stack.serve("demo", bad, good, routing=ROUND_ROBIN)

    async def ask(**more: Any) -> str:
        async with stack.chat(**more) as response:
            return str(response.headers["x-yaie-endpoint"])

    async with asyncio.timeout(GENEROUS_S):
        asked = await asyncio.gather(*(ask(stream=bool(i % 2)) for i in range(8)))
    assert set(asked) == {"good"}
    assert await ejections(stack) == 1
    assert await stack.metric('yaie_router_retries_total{cause="lost",model="demo"}') == 4
    bad.ready, bad.stall_before_head = "200 OK", False
    await stack.until(lambda: _serves(stack, "bad"))


async def test_a_suspect_that_answers_its_probes_may_go_on(start_router: StackMaker) -> None:
    stack = await start_router(suspect_after_s=0.2)
    engine = FakeEngine("pod-a", ttft_s=2.5)
    await stack.serve("demo", engine)
    async with stack.chat() as response:
        assert (await response.read()).endswith(DONE)
    assert engine.probes >= 2
    assert await ejections(stack) == 0


async def test_an_endpoint_that_disappears_frees_those_that_wait_there(stack: Stack) -> None:
    gone, good = FakeEngine("gone", stall_before_head=True), FakeEngine("good")
    await stack.serve("demo", gone, routing=ROUND_ROBIN)
    waiting = asyncio.create_task(served(stack, 3))
    await stack.until(lambda: _truth(len(gone.received) == 3))
    stack.engines.append(await good.start())
    await stack.api.put(endpoint_slice("demo", good, suffix="1"))
    await stack.until(lambda: stack.knows("demo", "demo", 2))
    await stack.api.delete("endpointslices", "demo-0")
    assert await asyncio.wait_for(waiting, GENEROUS_S) == {"good"}


async def test_a_busy_engine_is_left_alone_and_not_ejected(stack: Stack) -> None:
    busy = FakeEngine("busy", status="429 Busy", content_type="application/json", pieces=[b"{}"])
    await stack.serve("demo", busy, FakeEngine("good"), routing=ROUND_ROBIN)
    for _ in range(20):
        assert await served(stack) == {"good"}
    assert await ejections(stack) == 0
    assert len(busy.received) < 10  # it is not asked again at once


async def test_what_the_router_has_run_out_of_is_no_engine_s_fault(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stack.serve("demo", FakeEngine("pod-a"), FakeEngine("pod-b"))

    async def take(*_: Any) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(Pool, "take", take)
    for _ in range(8):
        async with stack.chat() as response:
            assert response.status == 503
            assert "no free connections" in (await response.json())["error"]["message"]
    assert await ejections(stack) == 0


async def _truth(value: bool) -> bool:
    return value


async def _serves(stack: Stack, name: str) -> bool:
    return name in await served(stack, 4)
