"""Entries of a mounted Secret, as the kubelet writes and changes them."""

import shutil
from pathlib import Path

import pytest

from yaie_router.tenants.mount import Entries, Mount, entries


def project(folder: Path, version: str, **files: str) -> None:
    """Write a version as the kubelet does: into a folder of its own, then turn the link over."""
    now = folder / f"..{version}"
    now.mkdir(parents=True)
    for name, text in files.items():
        (now / name).write_text(text)
        visible = folder / name
        if not visible.is_symlink():
            visible.symlink_to(Path("..data") / name)
    before = (folder / "..data").resolve() if (folder / "..data").is_symlink() else None
    (folder / "..data_tmp").symlink_to(now.name)
    (folder / "..data_tmp").rename(folder / "..data")
    for visible in folder.iterdir():
        if visible.is_symlink() and not visible.exists():
            visible.unlink()
    if before is not None:
        shutil.rmtree(before)


class Taken(list[dict[str, bytes]]):
    def __call__(self, found: Entries) -> None:
        self.append(dict(found))


def test_each_version_is_taken_once(tmp_path: Path) -> None:
    taken = Taken()
    mount = Mount(tmp_path, taken)
    project(tmp_path, "1", a="one", b="two")
    mount.look()
    mount.look()
    project(tmp_path, "2", a="uno")
    mount.look()
    project(tmp_path, "3")
    mount.look()
    mount.look()
    assert taken == [{"a": b"one", "b": b"two"}, {"a": b"uno"}, {}]


def test_an_ordinary_folder_will_do(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one")
    (tmp_path / ".swap").write_text("no")
    (tmp_path / "folder").mkdir()
    assert entries(tmp_path) == {"a": b"one"}


def test_what_cannot_be_read_changes_nothing_and_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    taken, folder = Taken(), tmp_path / "keys"
    mount = Mount(folder, taken)
    mount.look()
    assert not taken
    assert "cannot be read" in caplog.text
    project(folder, "1", a="one")
    mount.look()
    shutil.rmtree(folder / "..1")
    mount.look()
    assert taken == [{"a": b"one"}]


def test_no_entry_is_kept(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("secret-key")
    mount = Mount(tmp_path, lambda _: None)
    mount.look()
    assert "secret-key" not in repr(vars(mount))
