"""One client process, against a server that answers as told."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from bench.programs import arrivals, clients, summary

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Ask = Callable[[Handler], Awaitable[list[summary.Outcome]]]
WORK = [arrivals.Arrival(0.0, [300, 301], 3), arrivals.Arrival(0.05, [302], 3)]


def event(choices: list[str], usage: int | None = None) -> bytes:
    counts = None if usage is None else {"completion_tokens": usage}
    body = {"choices": [{"text": text} for text in choices], "usage": counts}
    return f"data: {json.dumps(body)}\n\n".encode()


def streaming(*events: bytes) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for each in events:
            await response.write(each)
            await asyncio.sleep(0.005)
        return response

    return handle


@pytest.fixture
async def ask() -> AsyncIterator[Ask]:
    """Sends WORK to a server with this handler; requests may take 0.4 s."""
    servers: list[TestServer] = []

    async def send(handler: Handler) -> list[summary.Outcome]:
        app = web.Application()
        app.router.add_post("/v1/completions", handler)
        servers.append(TestServer(app))
        await servers[-1].start_server()
        start_s = time.monotonic()
        target = clients.Target(str(servers[-1].make_url("")).rstrip("/"), "m")
        return await clients._client(target, WORK, start_s, start_s + 0.4)

    yield send
    for server in servers:
        await server.close()


async def test_chunks_are_timed_and_tokens_are_the_servers_count(ask: Ask) -> None:
    stream = [event(["a"]), event(["b"]), event(["c"]), event([], usage=3), b"data: [DONE]\n\n"]

    outcomes = await ask(streaming(*stream))

    assert all(each.ended_well for each in outcomes)
    assert [len(each.gaps_s) for each in outcomes] == [2, 2]
    assert all(each.ttft_s is not None and each.last_s is not None for each in outcomes)
    assert outcomes[1].start_s - outcomes[0].start_s >= 0.04


async def test_a_refusal_is_kept_with_its_status(ask: Ask) -> None:
    async def refuse(request: web.Request) -> web.StreamResponse:
        return web.Response(status=429, text="queue is full")

    outcomes = await ask(refuse)

    assert [each.complaint for each in outcomes] == ["429 queue is full"] * 2


async def test_an_answer_that_breaks_off_did_not_end_well(ask: Ask) -> None:
    async def break_off(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(event(["a"]))
        assert request.transport is not None
        request.transport.abort()
        return response

    outcomes = await ask(break_off)

    assert not any(each.ended_well for each in outcomes)
    assert all(each.error for each in outcomes)


async def test_what_runs_past_the_deadline_is_cut_off(ask: Ask) -> None:
    async def hang(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(event(["a"]))
        await asyncio.sleep(1.5)
        return response

    outcomes = await ask(hang)

    assert [each.complaint for each in outcomes] == ["cut off at the end of the grace period"] * 2
