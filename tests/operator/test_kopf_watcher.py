import asyncio
import getpass
import threading
from itertools import islice
from typing import Any

import aiohttp
import kopf
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from yaie_api import names
from yaie_operator.cluster import WatchEvent
from yaie_operator.watch import kinds, kopf_watcher
from yaie_operator.watch.kopf_watcher import Watcher
from yaie_operator.watch.watch_health import WatchHealth


def watcher(**rest: Any) -> Watcher:
    return Watcher(lambda _: None, kubeconfig=None, **{"namespaces": (), **rest})


async def test_an_event_becomes_a_change_with_its_type() -> None:
    changes: list[WatchEvent] = []
    changed = kopf_watcher._handler(kinds.SERVICE, changes.append)
    await changed(event={"type": "DELETED", "object": {"metadata": {"name": "a"}}}, other=1)
    await changed(event={"type": None, "object": {"metadata": {"name": "b"}}})
    typed = {"apiVersion": "v1", "kind": "Service"}
    assert changes == [
        WatchEvent("DELETED", {"metadata": {"name": "a"}, **typed}),
        WatchEvent("ADDED", {"metadata": {"name": "b"}, **typed}),
    ]


def test_children_are_selected_by_the_server_and_nothing_is_posted() -> None:
    settings = kopf_watcher._settings()
    assert settings.posting.enabled is False
    assert settings.scanning.disabled is True
    assert set(settings.watching.label_selectors.values()) == {
        "app.kubernetes.io/managed-by=yaie-operator"
    }
    assert len(settings.watching.label_selectors) == len(kinds.WATCHED)
    assert [*settings.watching.field_selectors.values()] == [
        f"metadata.name={name}" for name in kinds.ONLY_NAMES.values()
    ]
    assert kinds.ONLY_NAMES[kinds.SECRET] == names.ROUTER_SECRET
    assert kinds.NETWORK_POLICY not in kinds.ONLY_NAMES  # it has two names


@pytest.mark.parametrize(("namespaces", "clusterwide"), [((), True), (("a", "b"), False)])
def test_kopf_is_told_where_to_watch_and_needs_no_name_of_a_user(
    namespaces: tuple[str, ...], clusterwide: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}

    async def operator(**arguments: Any) -> None:
        asked.update(arguments)
        running._stop.set()

    monkeypatch.setattr(kopf, "operator", operator)
    monkeypatch.setattr(getpass, "getuser", lambda: pytest.fail("asked for the user's name"))
    running = watcher(namespaces=namespaces)
    running.start()
    running._thread.join(5)
    assert (asked["clusterwide"], asked["namespaces"]) == (clusterwide, namespaces)
    assert asked["identity"] == "yaie-operator"
    assert asked["standalone"] is True


def test_watches_that_end_by_themselves_start_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    started = threading.Semaphore(0)

    async def fails(**_: Any) -> None:
        started.release()
        raise RuntimeError("watch broke")

    monkeypatch.setattr(kopf, "operator", fails)
    monkeypatch.setattr(kopf_watcher, "RESTART_S", (0.01,))
    running = watcher()
    running.start()
    for _ in range(3):
        assert started.acquire(timeout=5)
    running.stop()
    assert not running._thread.is_alive()
    assert "watches ended" in caplog.text


def test_a_deaf_watch_is_ended_and_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody asks for it any more, and kopf goes on as if nothing had happened."""
    started = threading.Semaphore(0)

    async def waits(stop_flag: threading.Event, **_: Any) -> None:
        started.release()
        while not stop_flag.is_set():  # noqa: ASYNC110 - a thread's event, as kopf gets it
            await asyncio.sleep(0.01)

    monkeypatch.setattr(kopf, "operator", waits)
    monkeypatch.setattr(kopf_watcher, "RESTART_S", (0.01,))
    monkeypatch.setattr(kopf_watcher, "CHECK_S", 0.01)
    now = [0.0]
    running = watcher(health=WatchHealth(["/api/v1/pods"], clock=lambda: now[0]))
    running.start()
    assert started.acquire(timeout=5)
    assert not started.acquire(timeout=0.2)
    now[0] = 1000.0
    assert started.acquire(timeout=5)
    running.stop()
    assert not running._thread.is_alive()


def test_attempts_of_a_request_never_end() -> None:
    assert list(islice(kopf_watcher._settings().networking.error_backoffs, 500))[-1] == 3.0


async def test_answers_and_failures_are_told_by_the_session() -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=200 if request.path == "/good" else 403)

    app = web.Application()
    app.router.add_get("/{name}", answer)
    server = TestServer(app)
    await server.start_server()
    health = WatchHealth(["/good", "/refused", "/unreachable"])
    url = str(server.make_url("")).rstrip("/")
    info = kopf.ConnectionInfo(server=url)
    session = kopf_watcher.session_of(info, health, lambda _: None).aiohttp_session
    async with session:
        await session.get(f"{url}/good")
        assert "/good: not watched yet" in health.trouble()  # a list is no watch
        await session.get(f"{url}/good?watch=true")
        await session.get(f"{url}/refused?watch=true")
        await server.close()
        with pytest.raises(aiohttp.ClientError):
            await session.get(f"{url}/unreachable?watch=true")
    assert "/good" not in health.trouble()
    assert "/refused: HTTP 403" in health.trouble()
    assert "/unreachable: ClientConnectorError" in health.trouble()
