"""Log files of pods with rotation: a file of limited size and one older part."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import BinaryIO, Final

MAX_BYTES: Final = 10 << 20
KEPT_FILES: Final = 50
_CHUNK_BYTES: Final = 1 << 16
_POLL_S: Final = 0.2


class LogFile:
    """Appends to `path`; before it exceeds `max_bytes`, it is renamed to `path.1`."""

    def __init__(self, path: Path, *, max_bytes: int = MAX_BYTES) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._file = _open(path)

    async def copy(self, source: asyncio.StreamReader) -> None:
        """Append all data of `source` until its end."""
        while chunk := await source.read(_CHUNK_BYTES):
            self.write(chunk)

    def write(self, data: bytes) -> None:
        if self._file.tell() + len(data) > self._max_bytes and self._file.tell() > 0:
            self._file.close()
            self._path.replace(older(self._path))
            self._file = _open(self._path)
        self._file.write(data)

    def close(self) -> None:
        self._file.close()


def prune(folder: Path, keep: int = KEPT_FILES) -> None:
    """Remove old logs: all but the `keep` most recently written files."""
    files = sorted(folder.glob("*.log*"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in files[keep:]:
        path.unlink()


def older(path: Path) -> Path:
    """Path of the older part of a log."""
    return path.with_name(path.name + ".1")


def tail(path: Path, lines: int | None) -> bytes:
    """The last `lines` lines (None: all) of a log, including its older part."""
    data = b"".join(part.read_bytes() for part in (older(path), path) if part.exists())
    if lines is None:
        return data
    wanted = data.splitlines(keepends=True)
    return b"".join(
        wanted[len(wanted) - lines :] if 0 < lines < len(wanted) else wanted * (lines > 0)
    )


class Follower:
    """Reads data appended to a file after its current end, across rotations."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._inode, self._offset = _identity(path)

    def read(self) -> bytes:
        """The data appended since the last call."""
        inode, size = _identity(self._path)
        if inode == self._inode and size >= self._offset:
            data = _read(self._path, self._offset)
            self._offset += len(data)
            return data
        rest = _read(older(self._path), self._offset) if self._inode else b""
        self._inode, self._offset = inode, 0
        return rest + (self.read() if size else b"")


async def follow(follower: Follower) -> AsyncGenerator[bytes]:
    """Yield appended data until cancelled."""
    while True:
        data = follower.read()
        if data:
            yield data
        else:
            await asyncio.sleep(_POLL_S)


def _identity(path: Path) -> tuple[int, int]:
    """Inode and size; (0, 0) if there is no file."""
    if not path.exists():
        return 0, 0
    found = path.stat()
    return found.st_ino, found.st_size


def _open(path: Path) -> BinaryIO:
    path.touch(mode=0o600)
    return path.open("ab", buffering=0)


def _read(path: Path, offset: int) -> bytes:
    if not path.exists():
        return b""
    with path.open("rb") as file:
        file.seek(offset)
        return file.read()
