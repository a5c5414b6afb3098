"""A folder for the sockets of one server, in the system's folder for temporary files.

A server that was killed leaves its folder behind. The next one removes it: the name says which
process has made it. A number that another process has meanwhile keeps the folder a while longer.
"""

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_PREFIX: Final = "yaie-"
_NAME: Final = re.compile(rf"{_PREFIX}(\d+)-\w+")
_LONGEST: Final = 70
"""Characters of the parent's path: a socket's path may have 107 bytes."""


@contextlib.contextmanager
def private_folder() -> Iterator[Path]:
    """Make a folder that only this user can enter, and remove it at the end."""
    usual = tempfile.gettempdir()
    base = usual if len(usual) <= _LONGEST else "/tmp"  # noqa: S108 - mkdtemp is safe there
    remove_abandoned(Path(base))
    with tempfile.TemporaryDirectory(prefix=f"{_PREFIX}{os.getpid()}-", dir=base) as folder:
        yield Path(folder)


def remove_abandoned(base: Path) -> None:
    """Remove this user's folders of processes that have ended."""
    for folder in base.glob(f"{_PREFIX}*"):
        named = _NAME.fullmatch(folder.name)
        with contextlib.suppress(OSError):  # another server removes it at the same time
            if named and _is_ours(folder) and not _is_running(int(named[1])):
                shutil.rmtree(folder)


def _is_ours(folder: Path) -> bool:
    return folder.lstat().st_uid == os.getuid() and folder.is_dir() and not folder.is_symlink()


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
