import asyncio
import getpass
import threading
from typing import Any

import kopf
import pytest

from yaie_operator.cluster import WatchEvent
from yaie_operator.watch import kinds, kopf_watcher
from yaie_operator.watch.kopf_watcher import Watcher


def watcher(died: Any = lambda: None, **rest: Any) -> Watcher:
    return Watcher(lambda _: None, kubeconfig=None, died=died, **{"namespaces": (), **rest})


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
    assert list(settings.watching.field_selectors.values()) == [
        "metadata.name=yaie-router-keys", "metadata.name=yaie-router", "metadata.name=yaie-router",
    ]  # fmt: skip


@pytest.mark.parametrize(("namespaces", "clusterwide"), [((), True), (("a", "b"), False)])
def test_kopf_is_told_where_to_watch_and_needs_no_name_of_a_user(
    namespaces: tuple[str, ...], clusterwide: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}

    async def operator(**arguments: Any) -> None:
        asked.update(arguments)

    monkeypatch.setattr(kopf, "operator", operator)
    monkeypatch.setattr(getpass, "getuser", lambda: pytest.fail("asked for the user's name"))
    running = watcher(namespaces=namespaces)
    running.start()
    running._thread.join(5)
    assert (asked["clusterwide"], asked["namespaces"]) == (clusterwide, namespaces)
    assert asked["identity"] == "yaie-operator"
    assert asked["standalone"] is True


def test_watches_that_end_by_themselves_are_told_and_those_that_we_end_are_not(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fails(**_: Any) -> None:
        raise RuntimeError("watch broke")

    async def waits(stop_flag: threading.Event, **_: Any) -> None:
        while not stop_flag.is_set():  # noqa: ASYNC110 - a thread's event, as kopf gets it
            await asyncio.sleep(0.01)

    told: list[str] = []
    monkeypatch.setattr(kopf, "operator", fails)
    broken = watcher(died=lambda: told.append("broken"))
    broken.start()
    broken._thread.join(5)
    monkeypatch.setattr(kopf, "operator", waits)
    stopped = watcher(died=lambda: told.append("stopped"))
    stopped.start()
    stopped.stop()
    assert told == ["broken"]
    assert not stopped._thread.is_alive()
    assert "watches failed" in caplog.text
