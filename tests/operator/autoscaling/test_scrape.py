"""A scraper ends in time, reads no endless page, and follows nobody elsewhere."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from yaie_operator.autoscaling import scrape
from yaie_operator.autoscaling.exposition import EngineFigures
from yaie_operator.autoscaling.scrape import Place, Scraper, places

PAGE = "yaie_engine_running_requests 4.0\n"


@asynccontextmanager
async def serving(answer: web.StreamResponse | str, key: str = "") -> AsyncIterator[Place]:
    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        if key and request.headers.get("Authorization") != f"Bearer {key}":
            return web.Response(status=401)
        return web.Response(text=answer) if isinstance(answer, str) else answer

    runner = web.ServerRunner(web.Server(handle))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield Place("ns", "pod", f"http://127.0.0.1:{runner.addresses[0][1]}")
    finally:
        await runner.cleanup()


async def fetch(place: Place, key: str = "") -> EngineFigures | None:
    async with scrape.session() as session:
        return (await Scraper(session, key=key).engines([place]))["pod"]


async def test_a_page_is_fetched_and_read() -> None:
    async with serving(PAGE) as place:
        assert await fetch(place) == EngineFigures(running=4.0)


async def test_a_key_is_shown_where_one_is_asked_for() -> None:
    async with serving(PAGE, key="secret") as place:
        assert await fetch(place) is None
        assert await fetch(place, key="secret") is not None


async def test_what_is_no_page_is_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(web.Response(status=302, headers={"Location": "/elsewhere"})) as place:
        assert await fetch(place) is None
    monkeypatch.setattr(scrape, "MOST_BYTES", 100)
    async with serving(PAGE + "#" * 200) as place:
        assert await fetch(place) is None
    assert await fetch(place) is None, "nobody listens any more"


def test_places_are_the_pods_own_ports_and_addresses() -> None:
    ports = [{"name": "http", "containerPort": 9000}]
    of_router = [*ports, {"name": "metrics", "containerPort": 9464}]
    pods = [
        {"metadata": {"name": "a", "namespace": "ns"}, "status": {"podIP": "10.0.0.1"}},
        {
            "metadata": {"name": "b", "namespace": "ns"},
            "spec": {"containers": [{"ports": ports}]},
            "status": {"podIP": "fd00::1"},
        },
        {"metadata": {"name": "c", "namespace": "ns"}, "status": {}},
        {
            "metadata": {"name": "d", "namespace": "ns"},
            "spec": {"containers": [{"ports": of_router}]},
            "status": {"podIP": "10.0.0.4"},
        },
    ]
    assert places(pods) == (
        Place("ns", "a", "http://10.0.0.1:8000"),
        Place("ns", "b", "http://[fd00::1]:9000"),
        Place("ns", "d", "http://10.0.0.4:9464"),
    )
