"""A router that holds tenants to their limits, and lets them take turns where engines are full."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from router.conftest import Stack, StackMaker
from router.fakes import DONE, FakeEngine, endpoint_slice, event
from router.tenants.test_mount import project
from yaie_api.http.usage_note import TokenUsage
from yaie_router.tenants import mount

SAID = TokenUsage(prompt_tokens=300, cached_tokens=0, completion_tokens=200)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mount, "PERIOD_S", 0.02)


def counting(name: str = "pod-a", **knobs: Any) -> FakeEngine:
    """An engine that tells what it counted."""
    return FakeEngine(name, pieces=[event("a"), SAID.comment(), DONE], **knobs)


def limited(folder: Path, version: str, **limits: Any) -> None:
    project(folder, version, **{name: json.dumps(given) for name, given in limits.items()})


async def start(
    start_router: StackMaker,
    folder: Path,
    *engines: FakeEngine,
    max_num_seqs: int = 64,
    **settings: Any,
) -> Stack:
    """Tenants a and b, whose keys are their names."""
    project(folder / "keys", "1", a="a", b="b")
    stack = await start_router(
        api_key_dir=folder / "keys", limits_dir=folder / "limits", host="0.0.0.0", **settings
    )
    stack.client.headers["x-api-key"] = "a"
    spec = {"engine": {"maxNumSeqs": max_num_seqs}, "routing": {"policy": "LeastLoaded"}}
    await stack.serve("demo", *engines, **spec)
    return stack


async def ask(stack: Stack, tenant: str = "a", **more: Any) -> tuple[int, dict[str, str], bytes]:
    stack.client.headers["x-api-key"] = tenant
    async with stack.chat(**more) as response:
        headers = {name.lower(): value for name, value in response.headers.items()}
        return response.status, headers, await response.read()


async def test_requests_beyond_the_limit_are_429_in_openai_s_words_and_others_are_served(
    start_router: StackMaker, tmp_path: Path
) -> None:
    limited(tmp_path / "limits", "1", a={"requestsPerMinute": 2})
    engine = counting()
    stack = await start(start_router, tmp_path, engine)
    status, headers, _ = await ask(stack)
    assert (status, headers["x-ratelimit-limit-requests"]) == (200, "2")
    assert headers["x-ratelimit-remaining-requests"] == "1"
    await ask(stack)
    status, headers, body = await ask(stack)
    error = json.loads(body)["error"]
    assert status == 429
    assert (error["type"], error["code"]) == ("requests", "rate_limit_exceeded")
    assert error["message"].startswith(
        "Rate limit reached for a on requests per min (RPM): Limit 2"
    )
    assert 28 <= int(headers["retry-after"]) <= 30
    assert headers["x-ratelimit-remaining-requests"] == "0"
    assert [one.headers["x-yaie-tenant"] for one in engine.received] == ["a", "a"]
    assert await stack.metric('yaie_router_rate_limited_total{tenant="a"}') == 1
    tokens = 'yaie_router_tokens_total{kind="%s",model="demo",tenant="a"}'
    assert [await stack.metric(tokens % kind) for kind in ("prompt", "completion")] == [600, 400]
    status, headers, _ = await ask(stack, "b")
    assert status == 200
    assert not [name for name in headers if name.startswith("x-ratelimit")]
    stack.client.headers["x-api-key"] = "a"
    async with stack.client.post("/v1/messages", json={"model": "demo"}) as response:
        assert (await response.json())["error"]["type"] == "rate_limit_error"


async def test_tokens_are_those_that_the_engine_counted(
    start_router: StackMaker, tmp_path: Path
) -> None:
    limited(tmp_path / "limits", "1", default={"tokensPerMinute": 600})
    stack = await start(start_router, tmp_path, counting())
    _, headers, body = await ask(stack, max_tokens=1)
    assert b"yaie-usage" not in body
    assert 550 < int(headers["x-ratelimit-remaining-tokens"]) < 600
    status, headers, body = await ask(stack, max_tokens=1)  # it has learned: 300 again, and 1
    assert status == 429
    error = json.loads(body)["error"]
    assert error["type"] == "tokens"
    assert "Limit 600, Used 50" in error["message"]
    assert "Requested 301" in error["message"]
    assert 19 <= int(headers["retry-after"]) <= 21


async def test_what_no_engine_computed_is_given_back(
    start_router: StackMaker, tmp_path: Path
) -> None:
    limited(tmp_path / "limits", "1", default={"tokensPerMinute": 1000})
    refusing = FakeEngine("pod-a", status="400 Bad Request", pieces=[b"{}"])
    stack = await start(start_router, tmp_path, refusing)
    for _ in range(4):
        assert (await ask(stack, max_tokens=900))[0] == 400
    await stack.engines[0].stop()
    for _ in range(4):
        assert (await ask(stack, max_tokens=900))[0] == 503


async def test_a_place_is_free_again_when_a_client_has_left(
    start_router: StackMaker, tmp_path: Path
) -> None:
    limited(tmp_path / "limits", "1", a={"maxConcurrency": 1})
    engine = counting(hold_at=1)
    stack = await start(start_router, tmp_path, engine)
    async with stack.chat() as response:
        assert response.status == 200
        status, headers, body = await ask(stack)
        assert (status, headers["retry-after"]) == (429, "1")
        assert b"concurrent requests: Limit 1, Used 1" in body
    engine.hold_at = None

    async def is_free() -> bool:
        return (await ask(stack))[0] == 200

    await stack.until(is_free)


async def test_changed_limits_count_without_a_restart(
    start_router: StackMaker, tmp_path: Path
) -> None:
    stack = await start(start_router, tmp_path, counting())
    assert not [name for name in (await ask(stack))[1] if name.startswith("x-ratelimit")]
    limited(tmp_path / "limits", "1", a={"requestsPerMinute": 1})

    async def is_refused() -> bool:
        return (await ask(stack))[0] == 429

    await stack.until(is_refused)
    project(tmp_path / "limits", "2", a="oops")
    await asyncio.sleep(0.1)
    assert (await ask(stack))[0] == 429
    limited(tmp_path / "limits", "3")

    async def is_served() -> bool:
        return (await ask(stack))[0] == 200

    await stack.until(is_served)


async def test_tenants_take_turns_where_engines_are_full(
    start_router: StackMaker, tmp_path: Path
) -> None:
    engine = counting(hold_at=1)
    stack = await start(start_router, tmp_path, engine, max_num_seqs=1, max_queued=3)
    served: list[str] = []

    async def one(name: str) -> None:
        stack.client.headers["x-api-key"] = name[0]
        status, headers, _ = await ask(stack, name[0])
        served.append(name if status == 200 else f"{name}: {status} {headers['retry-after']}")

    tasks = []
    for count, name in enumerate(("a1", "a2", "a3", "a4", "a5", "b1")):
        tasks.append(asyncio.create_task(one(name)))
        await stack.until(lambda count=count: _has_come(stack, served, count + 1))  # type: ignore[misc]
    assert len(engine.received) == 1
    assert await stack.metric('yaie_router_queued_requests{model="demo"}') == 3
    assert served == ["a5: 429 4", "a4: 429 4"], "the newest of the one who waits most"
    engine.hold_at = None
    engine.resume.set()
    await asyncio.gather(*tasks)
    assert served[2:] == ["a1", "b1", "a2", "a3"]


async def _has_come(stack: Stack, served: list[str], count: int) -> bool:
    in_flight = await stack.metric('yaie_router_requests_in_flight{model="demo"}')
    return in_flight + len(served) >= count


async def test_a_full_engine_is_no_reason_to_wait_for_ever(
    start_router: StackMaker, tmp_path: Path
) -> None:
    engine = counting(hold_at=1)
    stack = await start(start_router, tmp_path, engine, max_num_seqs=1, queue_timeout_s=0.1)
    async with stack.chat() as response:
        assert response.status == 200
        status, headers, body = await ask(stack, "b")
        assert (status, int(headers["retry-after"])) >= (503, 1)
        assert b"All engines were busy" in body
        engine.resume.set()


class Load:
    """Clients of one tenant, each with a request after the other."""

    def __init__(self, stack: Stack, key: str, clients: int) -> None:
        self._stack = stack
        self._key = {"x-api-key": key}
        self._clients = clients
        self.ttft_s: list[float] = []

    async def run(self, requests: int) -> float:
        """The longest time to a first token."""
        self.ttft_s.clear()
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, headers=self._key) as session:
            clients = (self._one(session, requests, index) for index in range(self._clients))
            await asyncio.gather(*clients)
        return max(self.ttft_s)

    async def _one(self, session: aiohttp.ClientSession, requests: int, index: int) -> None:
        await asyncio.sleep(0.011 * index)
        body = {"model": "demo", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
        for _ in range(requests):
            began_s = time.perf_counter()
            url = f"{self._stack.url}/v1/chat/completions"
            async with session.post(url, json=body) as response:
                assert response.status == 200
                await response.content.readany()
                self.ttft_s.append(time.perf_counter() - began_s)
                await response.read()


@pytest.mark.drill
async def test_a_tenant_with_fifty_times_the_load_of_another_does_not_double_its_wait(
    start_router: StackMaker, tmp_path: Path
) -> None:
    """Thirty-two seats. Were the two one tenant, the wait would be many times as long."""
    engines = [
        counting(f"pod-{itl_s}", ttft_s=0.3, itl_s=itl_s) for itl_s in (0.06, 0.09, 0.13, 0.17)
    ]
    stack = await start(start_router, tmp_path, *engines, max_num_seqs=8)
    del stack.client.headers["x-api-key"]
    light = Load(stack, "b", 2)
    alone_s = await light.run(6)
    waits_s = {}
    for name, key in (("in turns", "a"), ("as one tenant", "b")):
        heavy = asyncio.create_task(Load(stack, key, 150).run(1000))
        await asyncio.sleep(1.5)
        waits_s[name] = await light.run(6 if key == "a" else 1)
        heavy.cancel()
        await asyncio.gather(heavy, return_exceptions=True)
        await asyncio.sleep(0.5)
    assert waits_s["in turns"] <= 2 * alone_s, (alone_s, waits_s)
    assert waits_s["as one tenant"] > 3 * alone_s, (alone_s, waits_s)


async def test_ready_routers_share_the_limits(start_router: StackMaker, tmp_path: Path) -> None:
    limited(tmp_path / "limits", "1", a={"requestsPerMinute": 60})
    stack = await start(start_router, tmp_path, counting(), replicas=2)

    async def share(expected: str) -> bool:
        _, headers, _ = await ask(stack)
        return headers["x-ratelimit-limit-requests"] == expected

    assert await share("30")  # as the operator says
    routers = [FakeEngine(f"yaie-router-{n}") for n in range(3)]
    for router in routers:
        router.port = stack.config.port
    told = endpoint_slice("", *routers)
    told["metadata"]["labels"]["kubernetes.io/service-name"] = "yaie-router"
    told["metadata"]["name"] = "yaie-router-1"
    told["endpoints"][2]["conditions"]["ready"] = False
    await stack.api.put(told)
    told["endpoints"][1]["conditions"]["ready"] = False
    await stack.api.put(told)
    await stack.until(lambda: share("60"))
