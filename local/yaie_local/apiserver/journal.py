"""The objects on disk: an append-only file of JSON lines, one line per write.

    {"rv": 7, "op": "snapshot"}         first line: the last resourceVersion before the rewrite
    {"rv": 7, "op": "put", "object": {…}}
    {"rv": 8, "op": "delete", "ref": ["v1", "Pod", "default", "demo-1"]}

If the process is killed, at most the last line is incomplete; its write was never acknowledged, and
the line is dropped. When the store is opened, and after every `COMPACT_BYTES`, the contents are
written to a new file, which then replaces the old one. A line is passed to the kernel before its
write is acknowledged; only a rewritten file is synced to the disk.
"""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from yaie_local.objects import Ref, ref
from yaie_local.state import StateError
from yaie_operator.cluster import Object

COMPACT_BYTES: Final = 16 << 20


class Journal:
    """The file of one store. Call `load` first, then `compact`, then `append`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1
        self._size_bytes = 0

    def load(self) -> tuple[int, dict[Ref, Object]]:
        """Read the last resourceVersion and all objects.

        Raises:
            StateError: a line of the file is damaged.

        """
        version, objects = 0, dict[Ref, Object]()
        lines = self._path.read_bytes().split(b"\n") if self._path.exists() else []
        for number, line in enumerate(lines[:-1], start=1):
            try:
                entry = json.loads(line)
                version = max(version, int(entry["rv"]))
                _replay(entry, objects)
            except (ValueError, KeyError, TypeError) as error:
                raise StateError(
                    f"{self._path}, line {number} is damaged ({error}); repair the line or move "
                    "the file away to start empty"
                ) from error
        return version, objects

    def compact(self, version: int, objects: Iterable[Object]) -> None:
        """Replace the file atomically by one line per object; later appends go to the new file."""
        self.close()
        fresh = self._path.with_suffix(".new")
        entries = [{"rv": version, "op": "snapshot"}, *(put_entry(obj) for obj in objects)]
        data = b"".join(_line(entry) for entry in entries)
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        _write_all(fd, data)
        os.fsync(fd)
        fresh.replace(self._path)
        self._fd, self._size_bytes = fd, len(data)

    def append(self, entry: dict[str, Any]) -> None:
        data = _line(entry)
        _write_all(self._fd, data)
        self._size_bytes += len(data)

    @property
    def is_long(self) -> bool:
        return self._size_bytes > COMPACT_BYTES

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def put_entry(obj: Object) -> dict[str, Any]:
    return {"rv": int(obj["metadata"]["resourceVersion"]), "op": "put", "object": obj}


def delete_entry(version: int, target: Ref) -> dict[str, Any]:
    return {"rv": version, "op": "delete", "ref": list(target)}


def _replay(entry: dict[str, Any], objects: dict[Ref, Object]) -> None:
    if entry["op"] == "put":
        objects[ref(entry["object"])] = entry["object"]
    elif entry["op"] == "delete":
        objects.pop(Ref(*entry["ref"]), None)


def _line(entry: dict[str, Any]) -> bytes:
    return json.dumps(entry, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
