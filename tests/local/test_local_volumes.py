from pathlib import Path
from typing import Any

import pytest

from fakes.local_objects import obj, pod
from yaie_local.kubelet.containers import ConfigError
from yaie_local.kubelet.volumes import discard, discard_all, folder_of, prepare
from yaie_local.state import StateFolder


def opened(folder: Path) -> StateFolder:
    state = StateFolder(folder)
    state.create()
    return state


def lookup(kind: str, name: str) -> Any:
    stored = {("Secret", "s"): obj("Secret", "s", stringData={"key": "hidden"})}
    return stored.get((kind, name))


def with_volumes(*volumes: dict[str, Any]) -> Any:
    return pod("p", pod={"volumes": list(volumes)})


def test_a_secret_becomes_private_files(tmp_path: Path) -> None:
    volume = {"name": "v", "secret": {"secretName": "s"}}
    found = prepare(with_volumes(volume), opened(tmp_path), lookup)
    file = found["v"] / "key"
    assert file.read_text() == "hidden"
    assert file.stat().st_mode & 0o077 == 0


def test_a_missing_map_is_named(tmp_path: Path) -> None:
    volume = {"name": "v", "configMap": {"name": "m"}}
    with pytest.raises(ConfigError, match='no ConfigMap "m"'):
        prepare(with_volumes(volume), opened(tmp_path), lookup)


def test_a_restart_of_the_container_keeps_its_scratch(tmp_path: Path) -> None:
    state, made = opened(tmp_path), with_volumes({"name": "v", "emptyDir": {}})
    (prepare(made, state, lookup)["v"] / "file").touch()
    assert (prepare(made, state, lookup)["v"] / "file").exists()


def test_a_pods_folder_goes_and_its_claim_stays(tmp_path: Path) -> None:
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}
    state, made = opened(tmp_path), with_volumes(volume, {"name": "e", "emptyDir": {}})
    claim = prepare(made, state, lookup)["v"]
    discard(made, state)
    assert not folder_of(made, state).exists()
    assert claim.is_dir()
    prepare(made, state, lookup)
    discard_all(state)
    assert list(state.pods.iterdir()) == []
    assert claim.is_dir()
