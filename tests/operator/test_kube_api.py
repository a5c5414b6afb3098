"""Requests to an API server, and what becomes of answers that are none."""

from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio.client import Configuration

from yaie_operator.cluster import ConflictError, NotFoundError, RefusedError, UnreachableError
from yaie_operator.watch.kube_api import KubeApi, Request


async def answer(request: web.Request) -> web.Response:
    if request.path == "/echo":
        seen = {"token": request.headers.get("Authorization"), "query": request.query_string}
        return web.json_response(seen | {"body": await request.text()})
    if request.path == "/page":
        return web.Response(text="<html>a proxy's page</html>")
    status = int(request.path.removeprefix("/status/"))
    return web.json_response({"message": "why"}, status=status)


@pytest.fixture
async def api() -> AsyncIterator[KubeApi]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    async with TestServer(app) as server:
        configuration = Configuration(host=str(server.make_url("")).rstrip("/"))
        configuration.api_key["BearerToken"] = "Bearer secret"
        made = KubeApi(configuration)
        yield made
        await made.close()


async def test_a_request_carries_the_token_the_query_and_the_body(api: KubeApi) -> None:
    request = Request("PATCH", "/echo", (("labelSelector", "a=b,c=d"),), {"spec": 1})
    assert await api.send(request) == {
        "token": "Bearer secret", "query": "labelSelector=a%3Db,c%3Dd", "body": '{"spec":1}',
    }  # fmt: skip


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (404, NotFoundError), (410, NotFoundError), (409, ConflictError), (401, UnreachableError),
        (429, UnreachableError), (500, UnreachableError), (403, RefusedError), (422, RefusedError),
    ],
)  # fmt: skip
async def test_a_failure_is_an_error_of_the_port_with_the_servers_words(
    status: int, error: type[Exception], api: KubeApi
) -> None:
    with pytest.raises(error, match="why"):
        await api.send(Request("GET", f"/status/{status}"))


async def test_an_answer_that_is_no_json_is_no_answer(api: KubeApi) -> None:
    with pytest.raises(UnreachableError, match="no JSON"):
        await api.send(Request("GET", "/page"))
