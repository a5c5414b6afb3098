"""Reading what engines publish, over real sockets: ends, refusals, and what makes no sense."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import aiohttp
import pytest
from aiohttp import web

from yaie_api.prefix import PrefixUpdate, encode
from yaie_router.discovery.objects import Endpoint, Model
from yaie_router.prefixes import subscriber
from yaie_router.prefixes.placer import Placer
from yaie_router.prefixes.subscriber import Subscriber

BODY = {"model": "demo", "messages": [{"role": "user", "content": "x" * 3000}]}
WITHIN_S = 20.0


class Publisher:
    """An engine: each connection gets the next of `streams`, or the last one again."""

    def __init__(self, *streams: list[bytes] | int) -> None:
        self.streams = list(streams)
        self.connections = 0
        self.end = asyncio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        stream = self.streams[min(self.connections, len(self.streams) - 1)]
        last = self.connections >= len(self.streams) - 1
        self.connections += 1
        if isinstance(stream, int):
            return web.Response(status=stream)
        out = web.StreamResponse()
        await out.prepare(request)
        for line in stream:
            await out.write(line)
        if last:
            await self.end.wait()
        return out


@asynccontextmanager
async def subscribed(publisher: Publisher, placer: Placer) -> AsyncIterator[Model]:
    app = web.Application()
    app.router.add_get("/prefixes", publisher.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    endpoint = Endpoint("engine", "127.0.0.1", port)
    async with aiohttp.ClientSession() as session:
        task = asyncio.create_task(Subscriber(placer, "demo", endpoint).run(session))
        try:
            yield Model("demo", "demo", endpoints=(endpoint,))
        finally:
            task.cancel()
            publisher.end.set()
            await asyncio.gather(task, return_exceptions=True)
            await runner.cleanup()


@pytest.fixture
def placer(monkeypatch: pytest.MonkeyPatch) -> Placer:
    monkeypatch.setattr(subscriber, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(subscriber, "LONGEST_PAUSE_S", 0.02)
    monkeypatch.setattr(subscriber, "SILENT_PAUSE_S", 0.02)
    return Placer(b"secret")


async def until(check: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not check():  # noqa: ASYNC110 - what it asks has no event
            await asyncio.sleep(0.005)


def snapshot(*keys: int, epoch: int = 1, sequence: int = 0) -> bytes:
    added = tuple((key, 16) for key in keys)
    return encode(PrefixUpdate(epoch, sequence, added, parts=1))


def has(placer: Placer, *keys: int) -> Callable[[], bool]:
    return lambda: (
        placer.num_keys("demo") == len(keys)
        and all(placer._fleets["demo"].holdings.depths([key], ["engine"]) for key in keys)
    )


@pytest.mark.asyncio
async def test_a_prompt_goes_where_an_engine_says_that_it_has_it(placer: Placer) -> None:
    keys = placer.keys(BODY, Model("demo", "demo"), "")
    async with subscribed(Publisher([snapshot(*keys.keys[:3])]), placer) as one:
        await until(has(placer, *keys.keys[:3]))
        model = replace(one, endpoints=(*one.endpoints, Endpoint("other", "127.0.0.1", 1)))
        ticket = placer.place(model, keys, ())
        assert ticket is not None
        assert ticket.endpoint.name == "engine"
        assert ticket.choice.placement.reason == "cached"
        share = ticket.choice.matched / ticket.choice.tokens
        assert share == pytest.approx(keys.ends[2] / keys.total_bytes, abs=0.01)


@pytest.mark.asyncio
async def test_a_stream_with_a_gap_is_opened_again(placer: Placer) -> None:
    gap = encode(PrefixUpdate(1, 5, ((9, 16),)))
    publisher = Publisher([snapshot(1), gap], [snapshot(1, 9, sequence=5)])
    async with subscribed(publisher, placer):
        await until(has(placer, 1, 9))


@pytest.mark.asyncio
async def test_an_engine_that_was_killed_in_mid_snapshot_is_read_again(placer: Placer) -> None:
    half = encode(PrefixUpdate(2, 0, ((7, 16),), parts=2))
    publisher = Publisher([snapshot(1)], [half, b'{"type":"pre'], [snapshot(3, epoch=3)])
    async with subscribed(publisher, placer):
        await until(has(placer, 3))


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "line", [b"no json\n", b'{"type":"prefixes"}\n', b"[]\n", b"x" * (1 << 19), b"\xff\xfe\n"]
)
async def test_a_line_that_cannot_be_read_ends_the_stream_and_nothing_else(
    placer: Placer, line: bytes
) -> None:
    publisher = Publisher([snapshot(1), line], [snapshot(2, epoch=2)])
    async with subscribed(publisher, placer):
        await until(has(placer, 2))


@pytest.mark.asyncio
@pytest.mark.parametrize("status", [404, 401, 301])
async def test_an_engine_that_publishes_nothing_is_not_placed_at(
    placer: Placer, status: int
) -> None:
    keys = placer.keys(BODY, Model("demo", "demo"), "")
    publisher = Publisher(status)
    async with subscribed(publisher, placer) as model:
        await until(lambda: publisher.connections > 2)
        assert placer.place(model, keys, ()) is None


@pytest.mark.asyncio
async def test_an_engine_that_is_not_ready_yet_is_asked_again(placer: Placer) -> None:
    async with subscribed(Publisher(503, 503, [snapshot(4)]), placer):
        await until(has(placer, 4))


@pytest.mark.asyncio
async def test_one_silent_engine_of_two_means_the_hash_ring(placer: Placer) -> None:
    keys = placer.keys(BODY, Model("demo", "demo"), "")
    async with subscribed(Publisher([snapshot(1)]), placer) as model:
        await until(has(placer, 1))
        foreign = Endpoint("foreign", "127.0.0.1", 1)
        both = Model("demo", "demo", endpoints=(*model.endpoints, foreign))
        assert placer.place(both, keys, ()) is not None  # it may have said nothing yet
        placer.silent("demo", "foreign")
        assert placer.place(both, keys, ()) is None
        assert placer.place(both, keys, {"foreign"}) is not None
