"""Starts and ends the process of a container, and ends processes that a crashed `yaie up` left.

Each process leads its own session and process group: Ctrl-C in the terminal reaches only `yaie up`,
and ending the group also ends the process's children. Its pid and start time are kept in a file
until it has ended, so that the next `yaie up` can distinguish an orphan from an unrelated process
with the same pid.
"""

import asyncio
import json
import os
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

RECORD: Final = "process.json"
_POLL_S: Final = 0.05


@dataclass(frozen=True)
class Launch:
    """The arguments of a process. `fds` are inherited; `env` is the whole environment."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: Path
    fds: tuple[int, ...] = ()


class Child:
    """A running process and its group. The task `exited` returns the leader's exit status."""

    def __init__(self, process: asyncio.subprocess.Process, record: Path) -> None:
        self._process = process
        self._record = record
        self.exited = asyncio.create_task(self._finish())

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def output(self) -> asyncio.StreamReader:
        """Standard output and standard error, merged.

        Raises:
            RuntimeError: the process was started without a pipe.

        """
        if self._process.stdout is None:
            raise RuntimeError("the process was started without a pipe")
        return self._process.stdout

    def signal(self, number: signal.Signals) -> None:
        """Signal the whole group, unless the leader has ended."""
        if not self.exited.done():
            signal_group(self.pid, number)

    async def _finish(self) -> int:
        """Wait for the leader, kill the rest of its group, and return the leader's exit status.

        A negative status is the signal that ended the leader. The rest of the group is killed
        first, because it may hold the output open, and `wait` would wait for that.
        """
        await _ended(self.pid)
        signal_group(self.pid, signal.SIGKILL)
        status = await self._process.wait()
        self._record.unlink(missing_ok=True)
        return status


async def start(launch: Launch, folder: Path) -> Child:
    """Start a process and record it in `folder`.

    Raises:
        OSError: the command cannot be executed.

    """
    process = await asyncio.create_subprocess_exec(
        *launch.argv,
        env=dict(launch.env),
        cwd=launch.cwd,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
        pass_fds=launch.fds,
    )
    record = folder / RECORD
    started = start_time(process.pid)
    if started is not None:
        record.write_text(json.dumps({"pid": process.pid, "start_time": started}))
    return Child(process, record)


def end_orphans(pods: Path, *, grace_s: float = 5.0) -> int:
    """End the recorded processes that still run (SIGTERM, then SIGKILL); returns how many."""
    orphans = [found for path in pods.glob(f"*/{RECORD}") if (found := _running(path)) is not None]
    for pid, _ in orphans:
        signal_group(pid, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while any(start_time(pid) == started for pid, started in orphans):
        if time.monotonic() > deadline:
            break
        time.sleep(_POLL_S)
    for pid, _ in orphans:
        signal_group(pid, signal.SIGKILL)
    return len(orphans)


def start_time(pid: int) -> int | None:
    """Start time of a process in clock ticks since boot; None if it has ended (or is a zombie).

    The pair of pid and start time identifies a process until the machine reboots.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field is the name in parentheses, which may itself contain parentheses.
    fields = stat[stat.rindex(")") + 2 :].split()
    return None if fields[0] == "Z" else int(fields[19])


def signal_group(leader: int, number: signal.Signals) -> None:
    """Signal a process group; do nothing if all of it has ended."""
    with suppress(ProcessLookupError):
        os.killpg(leader, number)


async def _ended(pid: int) -> None:
    """Wait until this process has ended, even if other processes hold its pipes open."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def _running(record: Path) -> tuple[int, int] | None:
    """Pid and start time of a recorded process if it still runs, else None."""
    try:
        entry = json.loads(record.read_text())
        pid, started = int(entry["pid"]), int(entry["start_time"])
    except (ValueError, KeyError):
        return None  # the crash cut the record short; the process has no pipe to write to any more
    return (pid, started) if start_time(pid) == started else None
