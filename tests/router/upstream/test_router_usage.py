"""The router learns what an answer took, and its clients get the bytes of the engine alone."""

import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest
import pytest_asyncio

from engine.server.scripted import ids_of, says
from engine.server.test_direct_stream import Served, serving
from engine.server.test_usage_note import BODIES, same
from router.conftest import Stack
from router.fakes import DONE, FakeEngine, event
from yaie_api.http.usage_note import TokenUsage
from yaie_api.names import HEADER_USAGE

USAGE = TokenUsage(prompt_tokens=12, cached_tokens=4, completion_tokens=30)
NOTE = USAGE.comment()


def fields_of(caplog: pytest.LogCaptureFixture) -> dict[str, Any]:
    """The keys of the last line of the router's access log that is of an engine's answer."""
    lines = [one for one in caplog.records if one.name == "yaie_router.app"]
    found = [one.__dict__["fields"] for one in lines if one.getMessage() == "request"]
    return dict([fields for fields in found if "attempts" in fields][-1])


@pytest.mark.parametrize(
    "pieces",
    [
        [event("a"), NOTE + DONE],
        [event("a"), NOTE, DONE],
        [event("a") + NOTE[:5], NOTE[5:-1], NOTE[-1:] + DONE],
        [event("a") + NOTE + DONE],
        [event("a"), DONE, NOTE],
    ],
)
async def test_clients_never_see_the_note(
    pieces: list[bytes], stack: Stack, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    await stack.serve("demo", FakeEngine("pod-a", pieces=pieces))
    async with stack.chat() as response:
        assert await response.read() == event("a") + DONE
    await stack.until(lambda: has_logged(caplog))
    assert fields_of(caplog)["tokens_in"] == 12
    assert fields_of(caplog)["cached"] == 4
    assert fields_of(caplog)["tokens_out"] == 30


async def has_logged(caplog: pytest.LogCaptureFixture) -> bool:
    lines = [one for one in caplog.records if one.getMessage() == "request"]
    return any("attempts" in one.__dict__["fields"] for one in lines)


async def test_a_plain_answer_tells_it_in_a_header(
    stack: Stack, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    engine = FakeEngine(
        "pod-a",
        pieces=[b"{}"],
        content_type="application/json",
        extra_headers=[(HEADER_USAGE, USAGE.header().decode())],
    )
    await stack.serve("demo", engine)
    async with stack.chat(stream=False) as response:
        assert await response.read() == b"{}"
        assert HEADER_USAGE not in response.headers
    await stack.until(lambda: has_logged(caplog))
    assert fields_of(caplog)["tokens_out"] == 30


async def test_of_a_stream_that_its_client_leaves_counts_what_was_relayed(
    stack: Stack, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    pieces = [event("a"), event("b"), b": ping\n\n", event("c"), event("d"), NOTE, DONE]
    await stack.serve("demo", FakeEngine("pod-a", pieces=pieces, hold_at=4))
    response = await stack.chat()
    for _ in range(2 * 3 + 2):
        await response.content.readline()
    response.close()
    await stack.until(lambda: has_logged(caplog))
    told = fields_of(caplog)
    assert told["status"] == 499
    assert 1 <= told["tokens_out"] <= 3  # events that come at once are one piece
    assert told["estimated"] is True
    assert "tokens_in" not in told
    labels = 'kind="{}",model="demo",tenant=""'
    total = [
        await stack.metric(f"yaie_router_tokens_total{{{labels.format(kind)}}}")
        for kind in ("completion", "prompt")
    ]
    assert total[0] == told["tokens_out"]
    assert 10 <= total[1] <= 40  # a quarter of the request's bytes


async def test_of_a_stream_that_breaks_counts_what_was_relayed(
    stack: Stack, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    engine = FakeEngine("pod-a", pieces=[event("a"), event("b"), DONE], reset_after_pieces=2)
    await stack.serve("demo", engine)
    async with stack.chat() as response:
        await response.read()
    await stack.until(lambda: has_logged(caplog))
    assert 1 <= fields_of(caplog)["tokens_out"] <= 2
    assert fields_of(caplog)["estimated"] is True


async def test_every_engine_is_asked_and_no_client_can_ask(stack: Stack) -> None:
    engine = FakeEngine("pod-a")
    await stack.serve("demo", engine)
    for headers in ({}, {HEADER_USAGE: "0"}):
        async with stack.client.post(
            "/v1/completions", json={"model": "demo", "prompt": "x"}, headers=headers
        ) as response:
            await response.read()
    assert [one.headers[HEADER_USAGE] for one in engine.received] == ["1", "1"]


# -- a real server behind the router ----------------------------------------------------------


@dataclass
class RealEngine(FakeEngine):
    """The engine's own server, started by the test, as the router's stack wants it."""

    served: Served | None = field(default=None)

    async def start(self) -> "FakeEngine":
        assert self.served is not None
        self.port = self.served.port
        return self

    async def stop(self) -> None:
        return


@pytest_asyncio.fixture
async def real(stack: Stack, tmp_path: Path) -> AsyncIterator[tuple[str, str]]:
    """URLs of a router and of the engine behind it, whose model is `stub`."""
    async with serving(tmp_path, says("so it is", cached_tokens=1)) as served:
        await stack.serve("stub", RealEngine("pod-a", served=served))
        yield stack.url, f"http://127.0.0.1:{served.port}"
        await stack.client.close()


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("stream", [True, False])
async def test_the_router_shows_what_the_engine_alone_would(
    path: str, stream: bool, real: tuple[str, str]
) -> None:
    bodies = []
    async with aiohttp.ClientSession() as client:
        for url in real:
            body = BODIES[path] | {"model": "stub", "stream": stream}
            async with client.post(url + path, json=body) as response:
                assert response.status == 200
                bodies.append(same(await response.read()))
    assert bodies[0] == bodies[1]


async def test_the_official_client_reads_the_same_through_the_router(
    real: tuple[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    told = []
    for url in real:
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none") as client:
            stream: Any = await client.chat.completions.create(
                model="stub", messages=[{"role": "user", "content": "hello"}], stream=True
            )
            told.append([chunk.choices[0].delta.content async for chunk in stream])
    assert told[0] == told[1]
    assert fields_of(caplog)["tokens_out"] == len(ids_of("so it is"))
