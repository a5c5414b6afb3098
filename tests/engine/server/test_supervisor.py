"""What the supervisor does about a process that says nothing."""

import asyncio
import logging
from itertools import count
from typing import Any

import pytest

from yaie.ipc.channel import EnginePort, Failed
from yaie.server.engine import supervisor
from yaie.server.engine.client import AsyncEngine, EngineState
from yaie.server.engine.supervisor import Supervisor
from yaie_api.errors import UnavailableError


class Deaf:
    """A process that says nothing, and is gone only some looks after it was killed."""

    returncode = None

    def __init__(self) -> None:
        self.kills = 0
        self._gone = asyncio.Event()

    def kill(self) -> None:
        self.kills += 1
        asyncio.get_running_loop().call_later(0.05, self._gone.set)

    async def wait(self) -> int:
        await self._gone.wait()
        return -9


async def test_silence_is_told_once_and_ends_a_process_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Every look at the clock finds that an hour has passed."""
    processes: list[Deaf] = []
    restarted = asyncio.Event()

    async def start(*command: str, **options: Any) -> Deaf:
        if processes:
            restarted.set()
        engine.state = EngineState.READY
        processes.append(Deaf())
        return processes[-1]

    async def ready(info: Any) -> None:
        raise AssertionError("it never said so")

    monkeypatch.setattr(supervisor, "POLL_S", 0.005)
    monkeypatch.setattr(asyncio, "create_subprocess_exec", start)
    engine = AsyncEngine(clock=count(step=3600).__next__)
    kept = Supervisor(lambda address: ["engine", address], engine, ready, ready, backoff_s=0.0)
    with caplog.at_level(logging.CRITICAL):
        task = asyncio.create_task(kept.run())
        await asyncio.wait_for(restarted.wait(), 10)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert [record.message for record in caplog.records] == ["engine is silent"]
    assert processes[0].kills == 1


class Dying:
    """A process that has ended with status 1."""

    returncode = 1

    async def wait(self) -> int:
        return 1


async def test_an_engine_that_dies_too_often_is_told_in_its_last_words(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It served, so it is replaced: its words do not mean that no engine can start."""

    async def start(address: str, **options: Any) -> Dying:
        engine.state = EngineState.READY
        port = EnginePort(address)
        port.send(Failed("AcceleratorError: an illegal memory access."))
        port.close()
        return Dying()

    async def ready(info: Any) -> None:
        raise AssertionError("it never said so")

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start)
    engine = AsyncEngine()
    kept = Supervisor(lambda address: [address], engine, ready, ready, max_deaths=1, backoff_s=0.0)
    with caplog.at_level(logging.ERROR), pytest.raises(UnavailableError) as ended:
        await asyncio.wait_for(kept.run(), 20)
    said = "AcceleratorError: an illegal memory access"
    assert ended.value.message == f"The engine process ended: {said}."
    assert [record.message for record in caplog.records] == ["engine died, starting it again"]
    assert caplog.records[0].fields["status"] == said  # type: ignore[attr-defined]  # set by `fields`


@pytest.mark.parametrize("what", ["private_folder", "create_subprocess_exec"])
async def test_who_waits_for_the_first_process_goes_on_where_none_can_be_started(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError("no room")

    async def ready(info: Any) -> None:
        raise AssertionError("it never said so")

    monkeypatch.setattr(supervisor if what == "private_folder" else asyncio, what, refuse)
    kept = Supervisor(lambda address: ["engine", address], AsyncEngine(), ready, ready)
    task = asyncio.create_task(kept.run())
    await asyncio.wait_for(kept.started(), 10)
    with pytest.raises(OSError, match="no room"):
        await task
