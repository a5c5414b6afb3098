import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.local_objects import obj
from yaie_local.apiserver import journal as journal_module
from yaie_local.apiserver import store as store_module
from yaie_local.apiserver.journal import Journal
from yaie_local.apiserver.store import ExpiredError, Store
from yaie_local.kinds import CONFIG_MAPS
from yaie_local.objects import ref
from yaie_local.state import StateError
from yaie_operator.cluster import ConflictError, NotFoundError


def opened(folder: Path) -> Store:
    return Store(Journal(folder / "objects.jsonl"), clock=lambda: 0.0)


def test_a_new_object_gets_uid_generation_time_and_version(tmp_path: Path) -> None:
    meta = opened(tmp_path).create(obj())["metadata"]
    assert meta["generation"] == 1
    assert meta["creationTimestamp"] == "1970-01-01T00:00:00Z"
    assert meta["resourceVersion"] == "1"
    assert len(meta["uid"]) == 36


def test_a_taken_name_is_a_conflict(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.create(obj())
    with pytest.raises(ConflictError, match="already exists"):
        store.create(obj())


def test_generation_grows_with_the_spec_only(tmp_path: Path) -> None:
    store = opened(tmp_path)
    first = store.create(obj(spec={"n": 1}))
    labelled = store.update({**first, "metadata": {**first["metadata"], "labels": {"a": "b"}}})
    told = store.update({**labelled, "status": {"ready": True}})
    changed = store.update({**told, "spec": {"n": 2}})
    generations = [o["metadata"]["generation"] for o in (first, labelled, told, changed)]
    assert generations == [1, 1, 1, 2]


def test_an_update_without_a_difference_writes_nothing(tmp_path: Path) -> None:
    store = opened(tmp_path)
    first = store.create(obj(data={"a": "1"}))
    assert store.update(obj(data={"a": "1"})) is first
    assert store.version == 1


def test_a_stale_writer_is_refused(tmp_path: Path) -> None:
    store = opened(tmp_path)
    first = store.create(obj(data={"a": "1"}))
    store.update({**first, "data": {"a": "2"}})
    with pytest.raises(ConflictError):
        store.update({**first, "data": {"a": "3"}})
    with pytest.raises(ConflictError):
        store.delete(first)


def test_a_successor_of_the_same_name_is_not_the_observed_object(tmp_path: Path) -> None:
    store = opened(tmp_path)
    first = store.create(obj())
    store.delete(first)
    store.create(obj())
    uid_only = obj(metadata={"uid": first["metadata"]["uid"]})
    with pytest.raises(ConflictError):
        store.delete(uid_only)


def test_what_is_gone_is_gone(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match='ConfigMap "a" not found'):
        opened(tmp_path).update(obj())


def test_lists_are_by_kind_namespace_and_labels_and_sorted(tmp_path: Path) -> None:
    store = opened(tmp_path)
    for name, labels in (("b", {"x": "1"}), ("a", {"x": "1"}), ("c", {})):
        store.create(obj(name=name, metadata={"labels": labels}))
    store.create(obj(name="a", metadata={"namespace": "other", "labels": {"x": "1"}}))
    store.create(obj("Secret", "a"))
    found = store.list(CONFIG_MAPS.kind, namespace="default", labels={"x": "1"})
    assert [o["metadata"]["name"] for o in found] == ["a", "b"]
    assert len(store.list(CONFIG_MAPS.kind)) == 4


def test_history_tells_each_write_after_a_version(tmp_path: Path) -> None:
    store = opened(tmp_path)
    first = store.create(obj())
    second = store.update({**first, "data": {"a": "1"}})
    store.delete(second)
    events = [(e.version, e.change.type) for e in store.since(1)]
    assert events == [(2, "MODIFIED"), (3, "DELETED")]
    assert list(store.since(3)) == []


def test_a_forgotten_or_future_version_has_expired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "HISTORY_EVENTS", 2)
    store = opened(tmp_path)
    live = store.create(obj())
    for n in range(5):
        live = store.update({**live, "data": {"n": str(n)}})
    assert len(list(store.since(4))) == 2
    for version in (3, 7):
        with pytest.raises(ExpiredError):
            store.since(version)


def test_everything_is_there_again_after_reopening(tmp_path: Path) -> None:
    store = opened(tmp_path)
    kept = store.create(obj(name="kept"))
    store.delete(store.create(obj(name="gone")))
    store.close()
    again = opened(tmp_path)
    assert again.list(CONFIG_MAPS.kind) == [kept]
    assert again.version == 3
    with pytest.raises(ExpiredError):
        again.since(1)


def test_the_version_survives_when_nothing_else_does(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.delete(store.create(obj()))
    store.close()
    opened(tmp_path).close()
    assert opened(tmp_path).create(obj())["metadata"]["resourceVersion"] == "3"


def test_a_torn_last_line_is_dropped(tmp_path: Path) -> None:
    store = opened(tmp_path)
    kept = store.create(obj(name="kept"))
    store.create(obj(name="torn"))
    store.close()
    path = tmp_path / "objects.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    again = opened(tmp_path)
    assert again.list(CONFIG_MAPS.kind) == [kept]
    assert path.read_bytes().endswith(b"\n")


def test_damage_before_the_end_is_refused_with_the_line(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.create(obj(name="a"))
    store.close()
    path = tmp_path / "objects.jsonl"
    path.write_bytes(b"{not json}\n" + path.read_bytes())
    with pytest.raises(StateError, match="line 1 is damaged"):
        opened(tmp_path)


def test_a_long_journal_is_rewritten_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "COMPACT_BYTES", 5_000)
    store = opened(tmp_path)
    live = store.create(obj(data={"n": "0"}))
    for n in range(200):
        live = store.update({**live, "data": {"n": str(n + 1)}})
    assert (tmp_path / "objects.jsonl").stat().st_size < 10_000
    store.close()
    assert opened(tmp_path).get(ref(live)) == live


def test_no_acknowledged_write_is_lost_by_a_kill_between_writes(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from yaie_local.apiserver import journal\n"
        "from yaie_local.apiserver.journal import Journal\n"
        "from yaie_local.apiserver.store import Store\n"
        "journal.COMPACT_BYTES = 20_000\n"
        f"store = Store(Journal(Path({str(tmp_path)!r}) / 'objects.jsonl'))\n"
        "for n in range(10**9):\n"
        "    o = store.create({'apiVersion': 'v1', 'kind': 'ConfigMap',\n"
        "        'metadata': {'name': f'n{n}', 'namespace': 'default'}, 'data': {'n': str(n)}})\n"
        "    if n % 3: store.delete(o)\n"
        "    print(n, flush=True)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, bufsize=1
    )
    assert process.stdout is not None
    while int(process.stdout.readline()) < 300:
        pass
    os.kill(process.pid, signal.SIGKILL)
    rest = process.stdout.read().split("\n")
    process.wait()
    process.stdout.close()
    complete = [int(line) for line in rest[:-1] if line]
    last = complete[-1] if complete else 300
    found = {o["data"]["n"] for o in opened(tmp_path).list(CONFIG_MAPS.kind)}
    expected = {str(n) for n in range(last + 1) if n % 3 == 0}
    assert expected <= found
    assert {int(n) for n in found - expected} <= {last + 1}


def test_the_file_is_private_and_readable_json(tmp_path: Path) -> None:
    opened(tmp_path).create(obj("Secret", "s", stringData={"token": "x"}))
    path = tmp_path / "objects.jsonl"
    assert path.stat().st_mode & 0o077 == 0
    assert [json.loads(line)["op"] for line in path.read_text().splitlines()] == ["snapshot", "put"]
