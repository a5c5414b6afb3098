"""The router answers people with pages, programs as ever, and describes what it forwards."""

import re
from typing import Any

import pytest

from router.conftest import Stack
from router.fakes import FakeEngine
from yaie.server.routes import ENDPOINTS
from yaie_api.http import pages
from yaie_router import routes

HTML = {"accept": "text/html,*/*;q=0.8"}


@pytest.mark.parametrize("path", ["/", "/docs"])
async def test_a_page_comes_with_its_headers(stack: Stack, path: str) -> None:
    async with stack.client.get(path, headers=HTML) as response:
        assert response.status == 200
        assert response.headers["content-type"] == "text/html; charset=utf-8"
        assert response.headers["content-security-policy"].startswith("default-src 'none'")
        assert response.headers["server"] == "yaie"
        assert response.headers["x-request-id"]
        assert await response.read() == pages.reply(path).body
        tag = response.headers["etag"]
    async with stack.client.get(path, headers=HTML | {"if-none-match": tag}) as response:
        assert response.status == 304
        assert await response.read() == b""


@pytest.mark.parametrize("path", ["/", "/docs"])
async def test_a_head_has_the_headers_and_no_body(stack: Stack, path: str) -> None:
    async with stack.client.head(path, headers=HTML) as response:
        assert response.status == 200
        assert int(response.headers["content-length"]) == len(pages.reply(path).body)
        assert await response.read() == b""


async def test_a_program_at_the_root_is_answered_as_ever(stack: Stack) -> None:
    for headers in ({}, {"accept": "application/json"}):
        async with stack.client.get("/", headers=headers) as response:
            assert response.status == 404
            assert (await response.json())["error"]["code"] == "path_not_found"


async def test_the_models_of_a_page_have_a_state(stack: Stack) -> None:
    await stack.serve("demo", FakeEngine())
    async with stack.client.get("/v1/models") as response:
        entry = (await response.json())["data"][0]
    assert (entry["state"], entry["engines"]) == ("ready", 1)
    assert "reason" not in entry


async def described(stack: Stack) -> dict[str, Any]:
    async with stack.client.get("/openapi.json") as response:
        assert response.status == 200
        return dict(await response.json())


async def test_the_router_describes_exactly_what_it_answers(stack: Stack) -> None:
    document = await described(stack)
    assert document["info"]["title"] == "yaie router"
    assert set(document["paths"]) == {*routes.FORWARDED, *routes.OTHERS, *routes.OWN}
    for path, operations in document["paths"].items():
        for method in operations:
            concrete = re.sub(r"{\w+}", "none", path)
            async with stack.client.request(method, concrete) as response:
                assert response.status not in (404, 405) or "{" in path, (method, path)
                assert response.status != 405


async def test_a_router_has_to_be_told_the_model(stack: Stack) -> None:
    schemas = (await described(stack))["components"]["schemas"]
    bodies = {one.body.__name__ for one in ENDPOINTS if one.body is not None}
    assert bodies <= schemas.keys()
    for name in bodies:
        assert "model" in schemas[name]["required"]
        assert schemas[name]["properties"]["model"]["type"] == "string"
