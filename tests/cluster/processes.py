"""Starts the daemons of the test cluster and ends them, each by its own id.

Every daemon writes to a log file; an early death is reported with the end of that log. The kernel
ends a daemon whose test process was killed outright (`setpriv --pdeathsig`).
"""

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

STOP_TIMEOUT_S = 10
POLL_S = 0.05


class DiedError(RuntimeError):
    """A daemon ended, or was not ready in time; the message holds the end of its log."""


class Daemon:
    """One running program."""

    def __init__(self, name: str, command: Sequence[str | Path], log: Path) -> None:
        self.name = name
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [*_die_with_parent(), *map(str, command)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "HOME": str(log.parent)},
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_until(self, ready: Callable[[], bool], *, timeout_s: float) -> None:
        """Poll `ready`. Raises DiedError when the daemon ends first or the time is over."""
        deadline = time.monotonic() + timeout_s
        while not ready():
            if self._process.poll() is not None:
                raise DiedError(f"{self.name} ended with {self._process.returncode}: {self.tail()}")
            if time.monotonic() > deadline:
                raise DiedError(f"{self.name} is not ready after {timeout_s} s: {self.tail()}")
            time.sleep(POLL_S)

    def tail(self, lines: int = 30) -> str:
        """The end of the log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def stop(self) -> None:
        """SIGTERM, then SIGKILL for one that does not listen."""
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextlib.contextmanager
def running(name: str, command: Sequence[str | Path], *, logs: Path) -> Iterator[Daemon]:
    """A daemon for the length of the block."""
    daemon = Daemon(name, command, logs / f"{name}.log")
    try:
        yield daemon
    finally:
        daemon.stop()


def _die_with_parent() -> list[str]:
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []
