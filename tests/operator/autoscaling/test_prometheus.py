"""A Prometheus server gives the same figures as the pods' own pages, or none."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import inf
from typing import Any

import pytest
from aiohttp import web

from yaie_operator.autoscaling import scrape
from yaie_operator.autoscaling.exposition import EngineFigures, RouterFigures
from yaie_operator.autoscaling.prometheus import Prometheus, query_of
from yaie_operator.autoscaling.scrape import Place

ENGINES = (Place("ns", "demo-1", ""), Place("ns", "demo-2", ""))


def row(name: str, value: str, **labels: str) -> dict[str, Any]:
    metric = {"__name__": name, "namespace": "ns", "job": "yaie", **labels}
    return {"metric": metric, "value": [1795358081.5, value]}


def answer(*rows: dict[str, Any]) -> str:
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": rows}})


@asynccontextmanager
async def server(body: str, status: int = 200) -> AsyncIterator[tuple[Prometheus, list[str]]]:
    """A Prometheus that answers this to every query, and the queries that it got."""
    queries: list[str] = []

    async def handle(request: web.Request) -> web.Response:
        queries.append(str((await request.post())["query"]))
        return web.Response(text=body, status=status)

    app = web.Application()
    app.router.add_post("/prefix/api/v1/query", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        async with scrape.session() as session:
            port = runner.addresses[0][1]
            yield Prometheus(session, f"http://127.0.0.1:{port}/prefix/"), queries
    finally:
        await runner.cleanup()


async def test_engines_are_read_by_pod_and_one_without_samples_is_none() -> None:
    bucket = "yaie_engine_time_to_first_token_seconds_bucket"
    body = answer(
        row("yaie_engine_running_requests", "4", pod="demo-1"),
        row("yaie_engine_waiting_requests", "2", pod="demo-1"),
        row("yaie_engine_kv_utilization_ratio", "0.5", pod="demo-1"),
        row(bucket, "9", pod="demo-1", le="+Inf"),
        row(bucket, "7", pod="demo-1", le="0.5"),
    )
    async with server(body) as (prometheus, queries):
        found = await prometheus.engines(ENGINES)
    assert found == {
        "demo-1": EngineFigures(4.0, 2.0, 0.5, ((0.5, 7.0), (inf, 9.0))),
        "demo-2": None,
    }
    assert 'namespace="ns",pod=~"demo-1|demo-2"' in queries[0]


async def test_routers_are_read_by_model() -> None:
    body = answer(
        row("yaie_router_requests_in_flight", "3", pod="r", model="demo"),
        row("yaie_router_requests_total", "3", pod="r", model="demo", status="200"),
        row("yaie_router_requests_total", "2", pod="r", model="demo", status="503"),
    )
    async with server(body) as (prometheus, _):
        found = await prometheus.routers([Place("ns", "r", "")])
    assert found == {"r": RouterFigures({"demo": 3.0}, {}, {"demo": 5.0})}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("", 200),
        ("[]", 200),
        ('{"status": "error"}', 422),
        (answer(row("yaie_engine_running_requests", "NaN", pod="demo-1")), 200),
        (answer({"metric": {}, "value": []}), 200),
    ],
)
async def test_an_answer_that_cannot_be_read_is_no_figure(body: str, status: int) -> None:
    async with server(body, status) as (prometheus, _):
        assert await prometheus.engines(ENGINES) == {"demo-1": None, "demo-2": None}


async def test_nothing_is_asked_about_no_pods() -> None:
    async with server("") as (prometheus, queries):
        assert await prometheus.engines([]) == {}
    assert queries == []


def test_a_dot_in_a_name_is_only_a_dot() -> None:
    assert 'pod=~"a\\\\.b"' in query_of(["x"], [Place("ns", "a.b", "")])
