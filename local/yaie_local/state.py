"""The state folder of `yaie up`: its paths, and the lock that gives it one owning process.

    STATE/objects.jsonl   the object store        STATE/logs/POD.log   output of pods
    STATE/lock            owner's pid             STATE/pods/UID/      record and volumes of a pod
    STATE/api.sock        REST API                STATE/volumes/NS/CLAIM   claims

The folder holds Secrets, so only its user may enter it (0700).
"""

import fcntl
import hashlib
import os
import tempfile
from pathlib import Path
from typing import Final

MAX_SOCKET_PATH_BYTES: Final = 100
"""Below Linux's limit of 108 bytes for the path of a unix socket, terminator included."""


class StateError(Exception):
    """The state folder cannot be used; the message says why and what to do."""


class StateFolder:
    """Paths inside one state folder; `create` makes the missing folders."""

    def __init__(self, path: Path) -> None:
        self.path = path.expanduser().absolute()

    @classmethod
    def default(cls) -> "StateFolder":
        """`$XDG_STATE_HOME/yaie`, or `~/.local/state/yaie`."""
        home = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
        return cls(Path(home) / "yaie")

    @property
    def of_run(self) -> "StateFolder":
        """The state folder of `yaie run`, which keeps nothing for `yaie up`."""
        return StateFolder(self.path / "run")

    @property
    def journal(self) -> Path:
        return self.path / "objects.jsonl"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def lock(self) -> Path:
        return self.path / "lock"

    def logs_of_last_run(self) -> list[Path]:
        """The logs written since a `yaie up` last took the lock, the oldest first."""
        if not self.lock.exists():
            return []
        began = self.lock.stat().st_mtime_ns
        written = {path: path.stat().st_mtime_ns for path in self.logs.glob("*.log")}
        return sorted((path for path in written if written[path] >= began), key=written.__getitem__)

    @property
    def pods(self) -> Path:
        return self.path / "pods"

    @property
    def volumes(self) -> Path:
        return self.path / "volumes"

    @property
    def socket(self) -> Path:
        """The REST API's socket: in the state folder, or in a private one if its path is long."""
        inside = self.path / "api.sock"
        if len(os.fsencode(inside)) <= MAX_SOCKET_PATH_BYTES:
            return inside
        digest = hashlib.sha256(os.fsencode(self.path)).hexdigest()[:16]
        return Path(tempfile.gettempdir()) / f"yaie-{os.getuid()}-{digest}" / "api.sock"

    def create(self) -> None:
        """Create the folders.

        Raises:
            StateError: a folder cannot be created, or belongs to another user.

        """
        for folder in (self.path, self.logs, self.pods, self.volumes, self.socket.parent):
            _private_folder(folder)


class StateLock:
    """The lock of the one process that owns a state folder.

    The kernel releases it when that process ends. Child processes do not inherit it, so an orphan
    never keeps a folder locked.
    """

    def __init__(self, folder: StateFolder) -> None:
        self._path = folder.lock
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._fd)
            raise _in_use(folder) from None
        os.ftruncate(self._fd, 0)
        os.write(self._fd, f"{os.getpid()}\n".encode())

    def release(self) -> None:
        os.close(self._fd)


def check_free(folder: StateFolder) -> None:
    """Look whether a `yaie up` has the folder, without taking it: the reason why its port is in use
    would not say that.

    Raises:
        StateError: one has it.

    """
    try:
        fd = os.open(folder.lock, os.O_RDONLY)
    except OSError:
        return  # nobody has ever had it, or creating it will say what is wrong
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        raise _in_use(folder) from None
    finally:
        os.close(fd)


def _in_use(folder: StateFolder) -> StateError:
    owner = folder.lock.read_text().strip() or "unknown"
    return StateError(
        f"another `yaie up` (pid {owner}) already uses {folder.path}; stop it, use `yaie apply` to "
        "add to it, or choose another --state-dir"
    )


def _private_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise StateError(
            f"the state folder {folder} cannot be made: {error.strerror}; choose another "
            "with --state-dir"
        ) from error
    if found.st_uid != os.getuid():
        raise StateError(f"{folder} belongs to another user; choose another --state-dir")
    if found.st_mode & 0o077:
        folder.chmod(0o700)
