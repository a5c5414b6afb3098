"""Streams whose engine dies go on at another one: each way to break, and each way to fail at it."""

import asyncio
import json
from array import array
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

import pytest

from router.conftest import Stack, StackMaker
from router.fakes import DONE, FakeEngine, event
from yaie_api.http.replay import LOST, note
from yaie_api.http.usage_note import TokenUsage

TEXTS = ("so ", "日本", "it ", "is, ", "as ", "they ", "say")
WHOLE = b"".join(event(text) for text in TEXTS) + DONE
USAGE = TokenUsage(9, 0, len(TEXTS))
_NUMBERS = count()
FAILED = b"engine_stopped"


@dataclass
class NotedEngine(FakeEngine):
    """Says `TEXTS`, a token each, with notes; goes on after the words that it gets.

    `dies_at`: the piece at which it dies, once it is asked for it; `dying`: what it still writes.
    `is_old`: it knows no notes. `refuses`: the status of its answer to a replay. `holds`: it waits
    for `resume` before the first token of a replay.
    """

    dies_at: int | None = None
    dying: bytes = b""
    is_old: bool = False
    refuses: str = ""
    holds: bool = False
    hangs_at: int | None = None
    identities: list[dict[str, Any]] = field(default_factory=list)

    async def _answer(self, writer: asyncio.StreamWriter) -> bool:
        asked = self.received[-1]
        identity = json.loads(asked.headers["x-yaie-replay"])
        self.identities.append(identity)
        size = identity.get("tail_bytes")
        words = array("I", asked.body[len(asked.body) - size :] if size else b"")
        done = sum(word >> 31 for word in words)
        if size is not None and self.refuses:
            writer.write(f"HTTP/1.1 {self.refuses}\r\ncontent-length: 0\r\n\r\n".encode())
            return True
        head = (
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n"
        )
        writer.write((head + ("\r\n" if self.is_old else "x-yaie-replay: 1\r\n\r\n")).encode())
        if size is not None and self.holds:
            await self.resume.wait()
        for index in range(done, len(TEXTS)):
            if index == self.dies_at:
                if self.dying:
                    writer.write(b"%x\r\n%s\r\n" % (len(self.dying), self.dying))
                await writer.drain()
                await asyncio.sleep(0.05)
                writer.transport.abort()
                return False
            if index == self.hangs_at:
                await self.left.wait()
            piece = event(TEXTS[index]) + (b"" if self.is_old else note([1000 + index]))
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            await writer.drain()
            await asyncio.sleep(0.005)
        end = USAGE.comment() + DONE
        writer.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(end), end))
        await writer.drain()
        return True


async def answer(stack: Stack, **more: Any) -> bytes:
    """Ask; each time with another text, so that each engine is some request's home."""
    more = {"text": f"hi {next(_NUMBERS)}"} | more
    async with stack.chat(**more) as response:
        assert response.status == 200
        return bytes(await response.read())


async def outcome(stack: Stack, name: str) -> float:
    sample = f'yaie_router_failovers_total{{model="demo",outcome="{name}"}}'
    return await stack.metric(sample)


async def broken(stack: Stack) -> float:
    return await stack.metric('yaie_router_broken_streams_total{model="demo"}')


DYING = {
    "at a border of pieces": b"",
    "before the note": event(TEXTS[3]),
    "in the middle of an event": event(TEXTS[3])[:11],
    "in the middle of a character": event("日本")[:-8],
    "in the middle of a note": event(TEXTS[3]) + note([1003])[:-4],
    "after a heartbeat": b": ping\n\n",
}


@pytest.mark.parametrize("how", DYING)
async def test_the_client_sees_no_seam(how: str, stack: Stack) -> None:
    dying = NotedEngine("pod-a", dies_at=3, dying=DYING[how])
    peers = [NotedEngine("pod-b"), NotedEngine("pod-c")]
    await stack.serve("demo", dying, *peers)
    while not dying.received:
        shown = await answer(stack, request_id="x")
        assert shown.replace(b": ping\n\n", b"") == WHOLE
    assert await outcome(stack, "continued") == 1
    assert await broken(stack) == 0


async def test_the_peer_gets_the_body_the_words_and_the_same_identity(stack: Stack) -> None:
    dying, peer = NotedEngine("pod-a", dies_at=3), NotedEngine("pod-b")
    await stack.serve("demo", dying, peer)
    while not dying.received:
        peer.received.clear()
        peer.identities.clear()
        await answer(stack)
    body, replay = dying.received[-1].body, peer.received[-1].body
    first, again = dying.identities[-1], peer.identities[-1]
    assert replay[: len(body)] == body
    assert list(array("I", replay[len(body) :])) == [(1000 + i) | 1 << 31 for i in range(3)]
    assert again.pop("tail_bytes") == 12
    assert again == first


@pytest.mark.parametrize("at", [0, 1, len(TEXTS) - 1])
async def test_it_may_break_at_the_first_or_the_last_piece(at: int, stack: Stack) -> None:
    dying, peer = NotedEngine("pod-a", dies_at=at, dying=event("x")), NotedEngine("pod-b")
    await stack.serve("demo", dying, peer)
    while not dying.received:
        assert await answer(stack) == WHOLE


async def test_it_may_break_before_the_end(stack: Stack) -> None:
    """The end reaches the client whole or not at all."""
    dying, peer = FakeEngine("pod-a"), NotedEngine("pod-b")
    noted = [event(t) + note([i]) for i, t in enumerate(TEXTS)]
    dying.extra_headers = [("x-yaie-replay", "1")]
    dying.pieces = [*noted[:-1], event("lost"), USAGE.comment(), b"data: [DO", b"NE]\n\n"]
    dying.reset_after_pieces = len(dying.pieces) - 1
    await stack.serve("demo", dying, peer)
    while not dying.received:
        assert await answer(stack) == WHOLE


async def test_an_engine_whose_process_died_says_so_and_another_goes_on(stack: Stack) -> None:
    dying, peer = FakeEngine("pod-a"), NotedEngine("pod-b")
    dying.extra_headers = [("x-yaie-replay", "1")]
    noted = [event(t) + note([i]) for i, t in enumerate(TEXTS[:4])]
    dying.pieces = [*noted, LOST + event("the engine died") + USAGE.comment() + DONE]
    await stack.serve("demo", dying, peer)
    while not dying.received:
        assert await answer(stack) == WHOLE
    assert await outcome(stack, "continued") == 1


async def test_an_engine_without_notes_ends_the_stream_with_an_error(stack: Stack) -> None:
    engines = [NotedEngine(name, dies_at=3, is_old=True) for name in ("pod-a", "pod-b")]
    await stack.serve("demo", *engines)
    shown = await answer(stack)
    assert FAILED in shown
    assert shown.endswith(DONE)
    assert await broken(stack) == 1
    assert sum(len(engine.received) for engine in engines) == 1


async def test_without_a_peer_the_stream_ends_with_an_error(stack: Stack) -> None:
    await stack.serve("demo", NotedEngine("pod-a", dies_at=3))
    shown = await answer(stack)
    assert shown.startswith(WHOLE[: len(b"".join(map(event, TEXTS[:3])))])
    assert FAILED in shown
    assert await outcome(stack, "no_peer") == 1
    assert await broken(stack) == 1


@pytest.mark.parametrize("status", ["400 Bad", "404 Not Found"])
async def test_a_peer_that_refuses_ends_the_stream_with_an_error(status: str, stack: Stack) -> None:
    engines = [NotedEngine(name, dies_at=3, refuses=status) for name in ("pod-a", "pod-b")]
    await stack.serve("demo", *engines)
    assert FAILED in await answer(stack)
    assert await outcome(stack, "refused") == 1


async def test_a_peer_that_is_busy_leaves_it_to_another(stack: Stack) -> None:
    dying = NotedEngine("pod-a", dies_at=3)
    full, free = NotedEngine("pod-b", refuses="429 Busy"), NotedEngine("pod-c")
    await stack.serve("demo", dying, full, free)
    while not dying.received:
        assert await answer(stack) == WHOLE
    assert await outcome(stack, "continued") == 1


async def test_a_peer_that_dies_after_some_tokens_has_the_next_one_go_on(stack: Stack) -> None:
    engines = [NotedEngine(f"pod-{at}", dies_at=at) for at in (2, 4, 6)]
    await stack.serve("demo", *engines, NotedEngine("pod-x"))
    for _ in range(12):
        assert await answer(stack) == WHOLE
        if await outcome(stack, "continued") > 1:
            return


async def test_two_engines_that_die_of_the_same_request_are_enough(stack: Stack) -> None:
    engines = [NotedEngine(f"pod-{i}", dies_at=3) for i in range(4)]
    await stack.serve("demo", *engines)
    assert FAILED in await answer(stack)
    assert sum(len(engine.received) for engine in engines) == 2
    assert await outcome(stack, "lost") == 1


async def test_a_client_that_leaves_during_the_replay_frees_the_peer(stack: Stack) -> None:
    dying, peer = NotedEngine("pod-a", dies_at=3), NotedEngine("pod-b", holds=True)
    await stack.serve("demo", dying, peer)
    while not dying.received:
        task = asyncio.create_task(answer(stack))
        await stack.until(partial(is_either, task, peer))
        if task.done():
            continue
        task.cancel()
        await asyncio.wait_for(peer.left.wait(), 20)
        await asyncio.gather(task, return_exceptions=True)
    await stack.until(lambda: has_left(stack))
    assert await stack.metric('yaie_router_in_flight{model="demo"}') == 0


async def is_either(task: "asyncio.Task[bytes]", peer: NotedEngine) -> bool:
    return task.done() or any("tail_bytes" in one for one in peer.identities)


async def has_left(stack: Stack) -> bool:
    return await outcome(stack, "client_left") == 1


async def test_so_many_replays_at_a_time_and_the_others_wait(start_router: StackMaker) -> None:
    stack = await start_router(max_replays=1)
    dying, peer = NotedEngine("pod-a", dies_at=3), NotedEngine("pod-b", holds=True)
    await stack.serve("demo", dying, peer)
    tasks = [asyncio.create_task(answer(stack, text=str(i))) for i in range(12)]
    await stack.until(lambda: replays_at(peer, 1))
    await asyncio.sleep(0.3)
    assert sum("tail_bytes" in one for one in peer.identities) == 1
    peer.resume.set()
    assert await asyncio.gather(*tasks) == [WHOLE] * 12
    assert await outcome(stack, "continued") == len(dying.received)


async def replays_at(peer: NotedEngine, count: int) -> bool:
    return sum("tail_bytes" in one for one in peer.identities) >= count


async def test_who_waits_too_long_for_its_turn_gets_an_error(start_router: StackMaker) -> None:
    stack = await start_router(max_replays=1, silence_timeout_s=0.5)
    dying, peer = NotedEngine("pod-a", dies_at=3), NotedEngine("pod-b", holds=True)
    await stack.serve("demo", dying, peer)
    tasks = [asyncio.create_task(answer(stack, text=str(i))) for i in range(12)]
    answers = await asyncio.gather(*tasks)
    assert sum(FAILED in one for one in answers) == len(dying.received)
    assert await outcome(stack, "no_room") >= 1


async def test_it_can_be_switched_off(start_router: StackMaker) -> None:
    stack = await start_router(max_replays=0)
    engine = FakeEngine("pod-a", pieces=[event("a"), event("b")], reset_after_pieces=1)
    await stack.serve("demo", engine, FakeEngine("pod-b", reset_after_pieces=1))
    assert FAILED in await answer(stack)
    assert all("x-yaie-replay" not in one.headers for one in engine.received)


async def test_without_room_for_its_body_a_stream_does_not_go_on(start_router: StackMaker) -> None:
    stack = await start_router(max_replay_bytes=10)
    await stack.serve("demo", *(NotedEngine(f"pod-{i}", dies_at=3) for i in range(2)))
    assert FAILED in await answer(stack)


async def test_a_frozen_engine_is_left_by_the_streams_that_can_go_on(
    start_router: StackMaker,
) -> None:
    stack = await start_router(suspect_after_s=0.5)
    frozen, peer = NotedEngine("pod-a", hangs_at=3, ready=None), NotedEngine("pod-b")
    await stack.serve("demo", frozen, peer)
    while not frozen.received:
        assert await answer(stack) == WHOLE
    assert await outcome(stack, "continued") == 1


async def test_clients_cannot_ask_for_a_replay(stack: Stack) -> None:
    engine = NotedEngine("pod-a")
    await stack.serve("demo", engine)
    body = {"model": "demo", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
    evil = {"x-yaie-replay": "evil"}
    async with stack.client.post("/v1/chat/completions", json=body, headers=evil) as response:
        assert await response.read() == WHOLE
        assert "x-yaie-replay" not in response.headers
    assert "evil" not in engine.received[0].headers["x-yaie-replay"]


async def test_the_peer_gets_what_is_left_of_the_client_s_time(stack: Stack) -> None:
    dying, peer = NotedEngine("pod-a", dies_at=3), NotedEngine("pod-b")
    await stack.serve("demo", dying, peer)
    limit = {"x-yaie-timeout-seconds": "60"}
    while not dying.received:
        peer.received.clear()
        text = f"hi {next(_NUMBERS)}"
        body = {"model": "demo", "stream": True, "messages": [{"role": "user", "content": text}]}
        async with stack.client.post("/v1/chat/completions", json=body, headers=limit) as response:
            assert await response.read() == WHOLE
    left_s = float(peer.received[-1].headers["x-yaie-timeout-seconds"])
    assert 0 < left_s < 60
    assert dying.received[-1].headers["x-yaie-timeout-seconds"] == "60"


async def test_a_stream_that_went_on_is_counted_once(stack: Stack) -> None:
    dying, peer = NotedEngine("pod-a", dies_at=3), NotedEngine("pod-b")
    await stack.serve("demo", dying, peer)
    asked = 0
    while not dying.received:
        await answer(stack)
        asked += 1
    route = 'model="demo",route="/v1/chat/completions",status="200"'
    assert await stack.metric(f"yaie_router_requests_total{{{route}}}") == asked
