import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from fakes.local_machine import is_running, until
from yaie_local.kubelet.processes import RECORD, Launch, end_orphans, start, start_time


def python(code: str, folder: Path) -> Launch:
    return Launch([sys.executable, "-c", code], {"PATH": "/usr/bin:/bin"}, folder)


async def test_the_exit_status_and_the_output_come_back(tmp_path: Path) -> None:
    child = await start(python("print('hello'); raise SystemExit(3)", tmp_path), tmp_path)
    assert await child.output.read() == b"hello\n"
    assert await child.exited == 3
    assert not (tmp_path / RECORD).exists()


async def test_a_running_process_is_recorded_by_pid_and_start_time(tmp_path: Path) -> None:
    child = await start(python("import time; time.sleep(60)", tmp_path), tmp_path)
    record = json.loads((tmp_path / RECORD).read_text())
    assert record == {"pid": child.pid, "start_time": start_time(child.pid)}
    child.signal(signal.SIGKILL)
    assert await child.exited == -signal.SIGKILL


async def test_what_the_process_started_ends_with_it(tmp_path: Path) -> None:
    code = "import subprocess; print(subprocess.Popen(['sleep', '60']).pid, flush=True)"
    child = await start(python(code, tmp_path), tmp_path)
    grandchild = int(await child.output.readline())
    async with asyncio.timeout(20):
        await child.exited  # long before the minute that the grandchild would sleep
    await until(lambda: not is_running(grandchild))


async def test_the_terminals_interrupt_does_not_reach_it(tmp_path: Path) -> None:
    child = await start(python("import os; print(os.getpgid(0), os.getpid())", tmp_path), tmp_path)
    group, pid = (await child.output.read()).split()
    assert group == pid
    await child.exited


async def test_a_program_that_is_not_there_is_an_oserror(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="/no/such/program"):
        await start(Launch(["/no/such/program"], {}, tmp_path), tmp_path)


async def test_only_the_recorded_process_itself_is_an_orphan(tmp_path: Path) -> None:
    """A stranger that got the pid of an ended process is left alone."""
    folder = tmp_path / "uid"
    folder.mkdir()
    sleeper = await asyncio.create_subprocess_exec("sleep", "60", start_new_session=True)
    started = start_time(sleeper.pid)
    assert started is not None
    (folder / RECORD).write_text(json.dumps({"pid": sleeper.pid, "start_time": started - 1}))
    assert end_orphans(tmp_path) == 0
    assert is_running(sleeper.pid)
    (folder / RECORD).write_text(json.dumps({"pid": sleeper.pid, "start_time": started}))
    assert end_orphans(tmp_path) == 1
    assert await sleeper.wait() == -signal.SIGTERM


async def test_an_orphan_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "uid"
    folder.mkdir()
    code = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "print('deaf', flush=True); time.sleep(60)"
    )
    child = await start(python(code, tmp_path), folder)
    await child.output.readline()
    began = time.monotonic()
    assert await asyncio.to_thread(end_orphans, tmp_path, grace_s=0.3) == 1
    assert time.monotonic() - began < 5
    assert await child.exited == -signal.SIGKILL


@pytest.mark.parametrize("text", ["", "{", "{}", '{"pid": "x"}'])
def test_a_torn_record_is_no_orphan(tmp_path: Path, text: str) -> None:
    (tmp_path / "uid").mkdir()
    (tmp_path / "uid" / RECORD).write_text(text)
    assert end_orphans(tmp_path) == 0


def test_start_time_is_the_same_for_life_and_none_after() -> None:
    assert start_time(os.getpid()) == start_time(os.getpid())
    assert start_time(2**22 + 1) is None
