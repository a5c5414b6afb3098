import os
import subprocess
import sys
from pathlib import Path

import pytest

from yaie_local.state import StateError, StateFolder, StateLock


def test_folders_are_made_and_private(tmp_path: Path) -> None:
    state = StateFolder(tmp_path / "deep" / "state")
    state.create()
    for folder in (state.path, state.logs, state.pods, state.volumes):
        assert folder.is_dir()
        assert folder.stat().st_mode & 0o077 == 0


def test_a_second_owner_is_told_who_holds_the_folder(tmp_path: Path) -> None:
    state = StateFolder(tmp_path)
    state.create()
    lock = StateLock(state)
    code = (
        "from pathlib import Path; from yaie_local.state import *\n"
        f"StateLock(StateFolder(Path({str(tmp_path)!r})))"
    )
    refused = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert "another `yaie up` (pid " in refused.stderr
    lock.release()
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_lock_ends_with_its_process_and_not_with_its_children(tmp_path: Path) -> None:
    state = StateFolder(tmp_path)
    state.create()
    code = (
        "import subprocess, sys; from pathlib import Path\n"
        "from yaie_local.state import *\n"
        f"lock = StateLock(StateFolder(Path({str(tmp_path)!r})))\n"
        "child = subprocess.Popen(['sleep', '20'], stdout=subprocess.DEVNULL,\n"
        "    stderr=subprocess.DEVNULL, close_fds=False)\n"
        "print(child.pid)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    StateLock(state).release()
    subprocess.run(["kill", done.stdout.strip()], check=True)


def test_the_socket_lies_in_the_folder_or_in_a_short_private_one(tmp_path: Path) -> None:
    short, deep = StateFolder(Path("/tmp/s")), StateFolder(tmp_path / ("d" * 120))
    assert short.socket == Path("/tmp/s/api.sock")
    assert len(str(deep.socket)) <= 100
    assert deep.socket != StateFolder(tmp_path / ("e" * 120)).socket
    deep.create()
    assert deep.socket.parent.stat().st_mode & 0o077 == 0
    deep.socket.parent.rmdir()


def test_the_default_folder_follows_xdg(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/somewhere")
    assert StateFolder.default().path == Path("/somewhere/yaie")


def test_a_folder_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.getuid", lambda: 12345)
    with pytest.raises(StateError, match="belongs to another user"):
        StateFolder(tmp_path).create()


def test_a_folder_that_cannot_be_made_is_named_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StateError, match="file cannot be made: File exists; choose another"):
        StateFolder(tmp_path / "file").create()


def test_the_logs_of_the_last_run_are_those_written_since_it_took_the_lock(tmp_path: Path) -> None:
    state = StateFolder(tmp_path)
    state.create()
    assert state.logs_of_last_run() == []
    for name, at in (("old", 10), ("b", 30), ("a", 40)):
        (state.logs / f"{name}.log").touch()
        os.utime(state.logs / f"{name}.log", (at, at))
    StateLock(state).release()
    os.utime(state.lock, (20, 20))
    assert [path.stem for path in state.logs_of_last_run()] == ["b", "a"]
