"""The router follows its namespace, and keeps serving what it knows when the API is away."""

import asyncio
from pathlib import Path

import pytest

from router.conftest import Stack, StackMaker
from router.fakes import DONE, FakeEngine, endpoint_slice, inference_model
from yaie_router.discovery import watch


async def test_a_new_model_is_served_and_a_deleted_one_is_not(stack: Stack) -> None:
    await stack.serve("demo", FakeEngine())
    async with stack.chat() as response:
        assert response.status == 200
    await stack.api.delete("inferencemodels", "demo")
    await stack.until(lambda: _status_is(stack, 404))


async def test_an_endpoint_that_terminates_or_is_not_ready_gets_no_request(stack: Stack) -> None:
    engine = FakeEngine("pod-a")
    await stack.serve("demo", engine)
    for change in ({"ready": False}, {"ready": True, "terminating": True}):
        item = endpoint_slice("demo", engine)
        item["endpoints"][0]["conditions"] = change
        await stack.api.put(item)
        await stack.until(lambda: _status_is(stack, 503))
        await stack.api.put(endpoint_slice("demo", engine))
        await stack.until(lambda: _status_is(stack, 200))


async def test_it_serves_on_while_the_api_is_away_and_catches_up(stack: Stack) -> None:
    await stack.serve("demo", FakeEngine("pod-a"))
    await stack.api.stop()
    for _ in range(5):
        async with stack.chat() as response:
            assert response.status == 200
            assert (await response.read()).endswith(DONE)
        await asyncio.sleep(0.05)
    async with stack.client.get("/readyz") as response:
        assert response.status == 200
    stack.api.put_silently(inference_model("later"))
    stack.api.socket.unlink(missing_ok=True)
    await stack.api.forget_history()
    await stack.api.start()
    await stack.until(lambda: stack.knows("later", "later", 0))


async def test_410_lists_again_and_finds_what_the_watch_missed(stack: Stack) -> None:
    await stack.serve("demo", FakeEngine())
    lists = stack.api.lists
    del stack.api.objects["inferencemodels"]["demo"]
    stack.api.put_silently(inference_model("other"))
    await stack.api.forget_history()
    await stack.until(lambda: stack.knows("other", "other", 0))
    assert stack.api.lists > lists
    async with stack.chat() as response:
        assert response.status == 404


async def test_a_watch_that_ends_goes_on_from_its_version_without_a_list(stack: Stack) -> None:
    await stack.serve("demo", FakeEngine())
    lists, watches = stack.api.lists, len(stack.api.watch_queries)
    await stack.api.hang_up()
    await stack.until(lambda: _more_watches(stack, watches + 2))
    assert stack.api.lists == lists
    assert {query["resourceVersion"] for query in stack.api.watch_queries[watches:]} <= {"1", "2"}
    await stack.api.put(inference_model("other"))
    await stack.until(lambda: stack.knows("other", "other", 0))


async def test_it_is_not_ready_before_the_first_list(start_router: StackMaker) -> None:
    stack = await start_router(api_socket=Path("/nonexistent/api.sock"))
    assert await _ready_is(stack, 503)
    async with stack.chat() as response:
        assert response.status == 503
        assert "starting" in (await response.json())["error"]["message"]
        assert int(response.headers["retry-after"]) >= 1


async def test_long_lists_are_read_page_by_page(start_router: StackMaker) -> None:
    stack = await start_router()
    stack.api.page = 2
    for name in ("a", "b", "c", "d", "e"):
        stack.api.put_silently(inference_model(name))
    await stack.api.forget_history()
    await stack.until(lambda: stack.knows("e", "e", 0))
    async with stack.client.get("/v1/models") as response:
        assert [entry["id"] for entry in (await response.json())["data"]] == list("abcde")


async def test_slices_are_selected_by_the_operators_label(stack: Stack) -> None:
    await stack.until(lambda: _more_watches(stack, 2))
    selectors = sorted(query.get("labelSelector", "") for query in stack.api.watch_queries)
    assert selectors == ["", "app.kubernetes.io/managed-by=yaie-operator"]


def test_the_token_is_read_at_every_request_because_it_rotates(tmp_path: Path) -> None:
    token = tmp_path / "token"
    access = watch.Access("https://10.0.0.1:443", token_file=token)
    for text in ("first", "second\n"):
        token.write_text(text)
        assert access.headers() == {"Authorization": f"Bearer {text.strip()}"}


@pytest.mark.parametrize(
    ("host", "url"), [("10.0.0.1", "https://10.0.0.1:443"), ("fd00::1", "https://[fd00::1]:443")]
)
def test_in_a_cluster_the_api_is_found_by_its_service_address(host: str, url: str) -> None:
    assert watch.in_cluster(host, "443").base_url == url


def test_pauses_grow_to_five_seconds_with_jitter() -> None:
    assert all(0.05 <= watch._pause_s(0) <= 0.1 for _ in range(20))
    assert all(1.5 <= watch._pause_s(1000) <= 3.0 for _ in range(20))


async def _status_is(stack: Stack, status: int) -> bool:
    async with stack.chat() as response:
        return bool(response.status == status)


async def _ready_is(stack: Stack, status: int) -> bool:
    async with stack.client.get("/readyz") as response:
        return response.status == status


async def _more_watches(stack: Stack, count: int) -> bool:
    return len(stack.api.watch_queries) >= count
