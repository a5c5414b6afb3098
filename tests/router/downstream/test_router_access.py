"""Keys and pages of other origins at the router: the rule of an engine's server."""

import logging

import pytest

from router.conftest import Stack, StackMaker
from router.fakes import DONE, FakeEngine
from yaie_api.http.access.cors import CorsPolicy
from yaie_router.config import Config, parse

APP = "https://app.example"
KEY = {"authorization": "Bearer secret-key"}
PREFLIGHT = {"origin": APP, "access-control-request-method": "POST"}


async def serving(start_router: StackMaker, engine: FakeEngine) -> Stack:
    """A router with a key and an origin. The engine is awaited with the key."""
    stack = await start_router(api_keys=("secret-key", "other"), cors=CorsPolicy((APP,)))
    stack.client.headers.update(KEY)
    await stack.serve("demo", engine)
    del stack.client.headers["authorization"]
    return stack


async def test_without_a_key_only_health_and_the_pages_answer(start_router: StackMaker) -> None:
    stack = await start_router(api_keys=("secret-key",))
    for path in ("/livez", "/readyz", "/health", "/docs", "/openapi.json"):
        async with stack.client.get(path) as response:
            assert response.status in (200, 503), path
    async with stack.client.get("/", headers={"accept": "text/html"}) as response:
        assert response.status == 200
    for path in ("/", "/v1/models", "/metrics", "/version", "/nope", "/livez/"):
        async with stack.client.get(path) as response:
            assert response.status == 401, path
            assert (await response.json())["error"]["code"] == "invalid_api_key"
            assert response.headers["www-authenticate"] == "Bearer"


async def test_a_wrong_key_is_refused_and_each_right_one_is_served(
    start_router: StackMaker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    engine = FakeEngine("pod-a")
    stack = await serving(start_router, engine)
    for wrong in ({}, {"authorization": "Bearer secret"}, {"x-api-key": ""}):
        async with stack.client.get("/v1/models", headers=wrong) as response:
            assert response.status == 401
    for right in (KEY, {"x-api-key": "other"}):
        stack.client.headers.update(right)
        async with stack.chat() as response:
            assert (await response.read()).endswith(DONE)
        stack.client.headers.clear()
    assert "secret-key" not in caplog.text


async def test_engines_never_see_a_key_that_the_router_has_checked(
    start_router: StackMaker,
) -> None:
    engine = FakeEngine("pod-a")
    stack = await serving(start_router, engine)
    stack.client.headers.update(KEY)
    async with stack.chat() as response:
        await response.read()
    assert "authorization" not in engine.received[0].headers
    assert "secret-key" not in str(engine.received)


async def test_a_router_without_keys_forwards_them(stack: Stack) -> None:
    """Engines may ask for keys themselves, or tell tenants apart by them."""
    engine = FakeEngine("pod-a")
    await stack.serve("demo", engine)
    stack.client.headers.update(KEY)
    async with stack.chat() as response:
        await response.read()
    assert engine.received[0].headers["authorization"] == "Bearer secret-key"


async def test_pages_of_an_allowed_origin_ask_first_and_read_every_answer(
    start_router: StackMaker,
) -> None:
    stack = await serving(start_router, FakeEngine("pod-a"))
    async with stack.client.options("/v1/chat/completions", headers=PREFLIGHT) as response:
        assert response.status == 204
        assert response.headers["access-control-allow-origin"] == APP
        assert "POST" in response.headers["access-control-allow-methods"]
    async with stack.client.get("/v1/models", headers={"origin": APP}) as response:
        assert response.status == 401
        assert response.headers["access-control-allow-origin"] == APP
    stack.client.headers.update(KEY | {"origin": APP})
    async with stack.chat() as response:
        await response.read()
        assert response.headers.getall("access-control-allow-origin") == [APP]
        assert "x-yaie-endpoint" in response.headers["access-control-expose-headers"]
    async with stack.chat(model="nope") as response:
        assert response.status == 404
        assert response.headers["access-control-allow-origin"] == APP


async def test_pages_of_others_are_told_nothing(start_router: StackMaker) -> None:
    stack = await serving(start_router, FakeEngine("pod-a"))
    evil = {"origin": "https://evil.example"}
    async with stack.client.options("/v1/models", headers=PREFLIGHT | evil) as response:
        assert response.status == 400
        assert "access-control-allow-origin" not in response.headers
    async with stack.client.get("/v1/models", headers=KEY | evil) as response:
        assert (response.status, response.headers["vary"]) == (200, "origin")
        assert "access-control-allow-origin" not in response.headers


async def test_a_local_router_without_keys_takes_pages_of_allowed_origins_only(
    start_router: StackMaker,
) -> None:
    stack = await start_router(cors=CorsPolicy((APP,)))
    for origin, status in ((APP, 200), ("https://evil.example", 400)):
        async with stack.client.get("/v1/models", headers={"origin": origin}) as response:
            assert response.status == status
    rebound = {"origin": APP, "host": "evil.example"}
    async with stack.client.get("/v1/models", headers=rebound) as response:
        assert response.status == 400


def settings(**environment: str) -> Config:
    return parse(["--api-socket", "/tmp/api.sock"], environment)


def test_keys_and_origins_come_from_the_environment() -> None:
    config = settings(YAIE_API_KEY="sesame\ntwo", YAIE_ALLOWED_ORIGINS=f'["{APP}"]')
    assert config.api_keys == ("sesame", "two")
    assert config.cors == CorsPolicy((APP,))
    assert "sesame" not in repr(config)


def test_an_origin_that_is_none_ends_the_start(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        settings(YAIE_ALLOWED_ORIGINS="app.example")
    assert "write its scheme" in capsys.readouterr().err
