"""A killed server's folder goes with the next start; those of others stay."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from yaie.server.engine import private_folder as module
from yaie.server.engine.private_folder import private_folder, remove_abandoned


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files, however long its path is."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(module, "_LONGEST", 1000)
    return tmp_path


def ended_pid() -> int:
    """The number of a process that has just ended."""
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    return done.pid


def test_the_folder_is_private_and_goes_at_the_end(base: Path) -> None:
    with private_folder() as folder:
        assert folder.parent == base
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "socket").touch()
    assert not folder.exists()


def test_a_folder_whose_process_has_ended_is_removed_by_the_next_start(base: Path) -> None:
    left = base / f"yaie-{ended_pid()}-abc"
    left.mkdir()
    (left / "engine-1").touch()
    with private_folder():
        assert not left.exists()


def test_what_runs_or_has_another_name_or_is_a_link_stays(tmp_path: Path) -> None:
    pid = ended_pid()
    kept = [
        tmp_path / f"yaie-{os.getpid()}-abc",
        tmp_path / "yaie-notes",
        tmp_path / f"other-{pid}-abc",
    ]
    for folder in kept:
        folder.mkdir()
    link = tmp_path / f"yaie-{pid}-link"
    link.symlink_to(kept[1])
    remove_abandoned(tmp_path)
    assert all(folder.is_dir() for folder in [*kept, link])


def test_a_base_with_a_long_path_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = tmp_path / ("x" * 80)
    base.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(base))
    with private_folder() as folder:
        assert len(str(folder)) < 90
