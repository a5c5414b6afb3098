"""Stored responses through a router: the engine that has one gets every request for it."""

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from engine.server.running import Server, serving
from router.conftest import Stack, StackMaker
from router.fakes import FakeEngine, endpoint_slice, inference_model
from router.test_router_app import error_of
from yaie_api.response_id import mark_of_pod
from yaie_router.discovery.endpoints import Directory
from yaie_router.discovery.objects import Endpoint

ANSWER = b'{"ok": true}'


def plain(name: str, **knobs: Any) -> FakeEngine:
    """An engine that answers with a JSON body."""
    common = {"pieces": [ANSWER], "content_type": "application/json", "content_length": len(ANSWER)}
    return FakeEngine(name, **(common | knobs))


def id_of(pod: str) -> str:
    """The same one each time: it names tests, and their names must not change."""
    return f"resp_{mark_of_pod(pod)}{'0123456789abcdef' * 2}"


def paths(*engines: FakeEngine) -> list[list[str]]:
    return [[one.path for one in engine.received] for engine in engines]


def conditions(model: str, engine: FakeEngine, suffix: str, **told: bool) -> dict[str, Any]:
    """The engine's slice with other conditions."""
    item = endpoint_slice(model, engine, suffix=suffix)
    item["endpoints"][0]["conditions"] = told
    return item


# Who has it


def directory_with(*slices: dict[str, Any]) -> Directory:
    directory = Directory()
    directory.models.replace([inference_model("m"), inference_model("n")])
    directory.slices.replace(slices)
    return directory


def slice_with(model: str, pod: str, **told: bool) -> dict[str, Any]:
    engine = FakeEngine(pod)
    engine.port = 8000
    return conditions(model, engine, pod, **told)


@pytest.mark.parametrize(
    ("response_id", "model", "pod"),
    [
        (id_of("a"), "m", "a"),
        (id_of("resting"), "m", "resting"),
        (id_of("ending"), "m", "ending"),
        (id_of("other"), "n", "other"),
    ],
)
def test_the_holder_is_found_by_the_id_alone(response_id: str, model: str, pod: str) -> None:
    directory = directory_with(
        slice_with("m", "a", ready=True),
        slice_with("m", "resting", ready=False),
        slice_with("m", "ending", ready=True, terminating=True),
        slice_with("n", "other"),
    )
    holder = directory.holder(response_id)
    assert holder is not None
    assert holder.model.name == model
    assert holder.endpoint == Endpoint(pod, "127.0.0.1", 8000)


@pytest.mark.parametrize("response_id", ["", "resp_", id_of(""), id_of("gone"), id_of("a") + "0"])
def test_nobody_has_what_names_no_engine_that_is_here(response_id: str) -> None:
    assert directory_with(slice_with("m", "a")).holder(response_id) is None


# What is sent where


@pytest.mark.parametrize("policy", ["PrefixAffinity", "LeastLoaded", "RoundRobin"])
async def test_what_is_asked_of_a_response_goes_to_its_engine(stack: Stack, policy: str) -> None:
    engines = [plain(f"pod-{i}") for i in range(4)]
    await stack.serve("demo", *engines, routing={"policy": policy})
    path = f"/v1/responses/{id_of('pod-2')}"
    asked = [
        ("GET", path),
        ("GET", path + "/input_items?limit=3&order=asc"),
        ("POST", path + "/cancel"),
        ("DELETE", path),
    ]
    for method, one in asked:
        async with stack.client.request(method, one) as response:
            assert (response.status, await response.read()) == (200, ANSWER)
            assert response.headers["x-yaie-endpoint"] == "pod-2"
    assert paths(*engines) == [[], [], [path for _, path in asked], []]
    sample = 'yaie_router_picks_total{model="demo",outcome="stored"}'
    assert await stack.metric(sample) == len(asked)
    counted = (
        'yaie_router_requests_total{model="demo",route="/v1/responses/{response_id}",status="200"}'
    )
    assert await stack.metric(counted) == 2.0


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/responses/input_tokens"])
async def test_a_conversation_goes_on_where_its_last_response_is(stack: Stack, path: str) -> None:
    engines = [plain(f"pod-{i}") for i in range(4)]
    await stack.serve("demo", *engines)
    for pod in ("pod-0", "pod-3"):
        body = {"model": "demo", "input": "the same", "previous_response_id": id_of(pod)}
        async with stack.client.post(path, json=body) as response:
            assert response.headers["x-yaie-endpoint"] == pod
    assert [len(engine.received) for engine in engines] == [1, 0, 0, 1]


@pytest.mark.parametrize("earlier", [id_of("gone"), id_of("elsewhere"), "resp_none", "", 7, None])
async def test_without_its_engine_a_conversation_goes_by_the_ordinary_choice(
    stack: Stack, earlier: object
) -> None:
    """The engine that gets it refuses what it does not have."""
    elsewhere = plain("elsewhere")
    await stack.serve("demo", *(plain(f"pod-{i}") for i in range(4)))
    await stack.serve("other", elsewhere)
    body = {"model": "demo", "input": "the same"}
    homes = set()
    for more in ({}, {"previous_response_id": earlier}):
        async with stack.client.post("/v1/responses", json=body | more) as response:
            homes.add(response.headers["x-yaie-endpoint"])
    assert len(homes) == 1
    assert not elsewhere.received


async def test_other_requests_are_not_led_by_such_a_field(stack: Stack) -> None:
    engines = [plain(f"pod-{i}") for i in range(4)]
    await stack.serve("demo", *engines)
    body = {"model": "demo", "messages": [{"role": "user", "content": "the same"}]}
    for engine in engines:
        body["previous_response_id"] = id_of(engine.name)
        async with stack.client.post("/v1/chat/completions", json=body) as response:
            assert response.status == 200
    assert sorted(len(engine.received) for engine in engines) == [0, 0, 0, 4]


async def test_a_response_of_an_engine_that_is_gone_is_404_and_the_text_says_why(
    stack: Stack,
) -> None:
    engine = plain("pod-0")
    await stack.serve("demo", engine)
    async with stack.client.get(f"/v1/responses/{id_of('gone')}") as response:
        assert response.status == 404
        error = await error_of(response)
    assert (error["code"], error["param"]) == ("response_not_found", "response_id")
    assert "memory of the engine" in error["message"]
    assert not engine.received


@pytest.mark.parametrize(
    "told", [{"ready": False}, {"ready": True, "serving": True, "terminating": True}]
)
async def test_an_engine_that_takes_no_new_work_still_gives_what_it_has(
    stack: Stack, told: dict[str, bool]
) -> None:
    resting, other = plain("pod-0"), plain("pod-1")
    await stack.serve("demo", resting, other)
    await stack.api.put(conditions("demo", resting, "0", **told))
    await stack.until(lambda: stack.knows("demo", "demo", 1))
    async with stack.client.get(f"/v1/responses/{id_of('pod-0')}") as response:
        assert response.headers["x-yaie-endpoint"] == "pod-0"
    assert len(resting.received) == 1


async def test_no_other_engine_is_tried_for_what_only_one_has(stack: Stack) -> None:
    """Elsewhere it would be a 404, and the client would give up what a little later is there."""
    loading = plain("pod-0", status="503 Loading", extra_headers=[("retry-after", "4")])
    other = plain("pod-1")
    await stack.serve("demo", loading, other)
    body = {"model": "demo", "input": "x", "previous_response_id": id_of("pod-0")}
    async with stack.client.post("/v1/responses", json=body) as response:
        assert (response.status, response.headers["retry-after"]) == (503, "4")
    async with stack.client.get(f"/v1/responses/{id_of('pod-0')}") as response:
        assert response.status == 503
    assert len(loading.received) == 2
    assert not other.received


async def test_only_the_methods_of_a_path_are_answered(stack: Stack) -> None:
    await stack.serve("demo", plain("pod-0"))
    async with stack.client.put(f"/v1/responses/{id_of('pod-0')}") as response:
        assert response.status == 405
        assert "Use GET or DELETE" in (await error_of(response))["message"]


async def test_before_the_first_list_nothing_is_said_to_be_gone(start_router: StackMaker) -> None:
    stack = await start_router(api_socket=Path("/nonexistent/api.sock"))
    async with stack.client.get(f"/v1/responses/{id_of('pod-0')}") as response:
        assert response.status == 503
        assert int(response.headers["retry-after"]) >= 1


# With engines that really store


class RealEngine(FakeEngine):
    """An engine process under the name of a pod."""

    def __init__(self, name: str, server: Server) -> None:
        super().__init__(name)
        self.port = server.port

    async def start(self) -> "RealEngine":
        return self

    async def stop(self) -> None:
        """The process ends with its fixture."""


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RealEngine]]:
    with contextlib.ExitStack() as stack:
        pods = [f"stub-7d9f8-{i}" for i in range(3)]
        servers = [
            stack.enter_context(serving(tmp_path_factory.mktemp(pod), "--pod", pod)) for pod in pods
        ]
        for server in servers:
            server.wait_ready()
        yield [RealEngine(pod, server) for pod, server in zip(pods, servers, strict=True)]


def client_of(stack: Stack) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=stack.url + "/v1", api_key="none", max_retries=0)


async def converse(stack: Stack) -> list[str]:
    """A conversation of some turns over stored responses; their ids."""
    async with client_of(stack) as client:
        ids: list[str] = []
        for turn in range(6):
            response = await client.responses.create(
                model="stub",
                input=f"turn {turn}",
                previous_response_id=ids[-1] if ids else openai.omit,
                max_output_tokens=3,
            )
            ids.append(response.id)
    return ids


async def test_stored_responses_work_through_a_router_with_several_engines(
    stack: Stack, engines: list[RealEngine]
) -> None:
    await stack.serve("stub", *engines, routing={"policy": "RoundRobin"})
    ids = await converse(stack)
    async with client_of(stack) as client:
        for response_id in ids:
            assert (await client.responses.retrieve(response_id)).id == response_id
        items = await client.responses.input_items.list(ids[-1])
        assert [item.type for item in items.data] == ["message"]
        with pytest.raises(openai.BadRequestError, match="background"):
            await client.responses.cancel(ids[0])
        await client.responses.delete(ids[0])
        with pytest.raises(openai.NotFoundError, match="memory of the engine"):
            await client.responses.retrieve(ids[0])


async def test_another_router_finds_them_too(
    start_router: StackMaker, engines: list[RealEngine]
) -> None:
    """A second replica, or the same one after a restart: nothing is shared but the namespace."""
    first, second = await start_router(), await start_router()
    for one in (first, second):
        await one.serve("stub", *engines, routing={"policy": "RoundRobin"})
    ids = await converse(first)
    async with client_of(second) as client:
        found = await asyncio.gather(*(client.responses.retrieve(one) for one in ids))
        assert [one.id for one in found] == ids
        went_on = await client.responses.create(
            model="stub", input="more", previous_response_id=ids[-1], max_output_tokens=3
        )
        assert went_on.previous_response_id == ids[-1]


async def test_a_conversation_whose_engine_is_gone_is_refused_with_what_to_do(
    stack: Stack, engines: list[RealEngine]
) -> None:
    await stack.serve("stub", *engines)
    async with client_of(stack) as client:
        with pytest.raises(openai.BadRequestError, match="Send its items as input instead"):
            await client.responses.create(
                model="stub", input="x", previous_response_id=id_of("stub-7d9f8-gone")
            )
