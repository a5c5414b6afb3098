"""Keeps an engine process under the HTTP process: starts it, watches it, starts it again.

A process that dies while it serves is replaced, a few times within a while; one that cannot load
its model, or dies too often, ends the server with a reason. A process whose step hangs ends itself
(`yaie.runtime.process.watchdog`); one that says nothing at all, not even that, is killed here. The
engine ends by itself when its standard input closes, so it never outlives the HTTP process, however
that one ended.
"""

import asyncio
import logging
import signal
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

from yaie.config import ModelInfo
from yaie.ipc.channel import EXIT_HANGS
from yaie.server.engine.api_server_pool import ApiServerPool
from yaie.server.engine.client import AsyncEngine, EngineState
from yaie.server.engine.follower import Follower
from yaie.server.options import SILENT_S
from yaie_api.errors import UnavailableError, YaieError
from yaie_api.logs import fields

log = logging.getLogger(__name__)

STOP_GRACE_S: Final = 5.0
POLL_S: Final = 0.5
SILENT_LOADING_S: Final = 120.0
"""While it loads, libraries may hold the interpreter's lock for long."""
MAX_FOLDER_LENGTH: Final = 70
LAST_WORDS_S: Final = 0.05
"""What a process sent just before its end is still on its way."""


class Supervisor:
    """Runs engine processes, one after the other.

    Args:
        command: the argument list of an engine process that connects to a given address.
        engine: told what the process says and when it comes and goes.
        on_ready: awaited before requests are taken (loads the tokenizer).
        max_deaths: deaths within `window_s` after which the server gives up.
        silent_s: silence after which a process that serves is killed.
        api_servers: the other HTTP processes that the engine process serves.

    """

    def __init__(
        self,
        command: Callable[[str], Sequence[str]],
        engine: AsyncEngine,
        on_ready: Callable[[ModelInfo], Awaitable[None]],
        *,
        max_deaths: int = 3,
        window_s: float = 600.0,
        backoff_s: float = 1.0,
        silent_s: float = SILENT_S,
        api_servers: ApiServerPool | None = None,
    ) -> None:
        self._follower = Follower(engine, on_ready, self._fail, _log_stage)
        self._api_servers = api_servers or ApiServerPool()
        self._command = command
        self._engine = engine
        self._max_deaths = max_deaths
        self._window_s = window_s
        self._backoff_s = backoff_s
        self._silent_s = silent_s
        self._deaths: list[float] = []
        self._process: asyncio.subprocess.Process | None = None
        self._started = asyncio.Event()
        self._stopping = False
        self._failure: YaieError | None = None
        self._starts = 0

    async def run(self) -> None:
        """Serve until `stop`.

        Raises:
            UnavailableError: the engine cannot be kept alive.

        """
        with private_folder() as folder:
            while not self._stopping:
                status = await self._one_process(Path(folder))
                if not self._stopping:
                    await self._after_death(status)

    async def started(self) -> None:
        """Return when `run` has started the first process, or could not."""
        await self._started.wait()

    async def stop(self) -> None:
        """End the engine process: it sees its standard input close. SIGKILL while it loads, when
        there is nothing to finish, and after a grace period.
        """
        self._stopping = True
        process = self._process
        if process is None or process.returncode is not None:
            return
        if process.stdin is not None:
            process.stdin.close()
        if self._engine.info is None:
            process.kill()
        try:
            async with asyncio.timeout(STOP_GRACE_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()

    async def _one_process(self, folder: Path) -> int:
        self._starts += 1
        address = f"ipc://{folder}/engine-{self._starts}"
        self._follower.follow(address)
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command(self._api_servers.follow(address)), stdin=asyncio.subprocess.PIPE
            )
            self._started.set()
            return await self._watch(self._process)
        finally:
            self._started.set()
            await asyncio.sleep(LAST_WORDS_S)
            self._follower.leave()

    async def _watch(self, process: asyncio.subprocess.Process) -> int:
        """Wait for the end of a process. It is killed when it was silent at two looks in a row: a
        pause of this process is no silence of that one, whose messages are there to be read.
        """
        was_silent = False
        while True:
            try:
                async with asyncio.timeout(POLL_S):
                    return await process.wait()
            except TimeoutError:
                is_silent = self._engine.silence_s > self._silence_limit_s
            if is_silent and was_silent:
                log.critical("engine is silent", extra=fields(seconds=self._engine.silence_s))
                process.kill()
                return await process.wait()
            was_silent = is_silent

    @property
    def _silence_limit_s(self) -> float:
        serving = self._engine.state is EngineState.READY
        return self._silent_s if serving else max(self._silent_s, SILENT_LOADING_S)

    async def _after_death(self, status: int) -> None:
        served = self._engine.state is EngineState.READY
        self._deaths = [t for t in self._deaths if time.monotonic() - t < self._window_s]
        self._deaths.append(time.monotonic())
        give_up = self._failure is not None or len(self._deaths) > self._max_deaths
        if give_up or not (served or self._engine.restarts):
            self._detach(EngineState.FAILED)
            raise self._failure or UnavailableError(f"The engine process ended: {_why(status)}.")
        log.error("engine died, starting it again", extra=fields(status=_why(status)))
        self._detach(EngineState.RESTARTING)
        await asyncio.sleep(self._backoff_s * 2 ** (len(self._deaths) - 1))

    def _detach(self, state: EngineState) -> None:
        self._engine.detach(state)
        self._api_servers.detach(state)

    def _fail(self, error: YaieError) -> None:
        """The process cannot serve, or cannot be served for: it ends, and nothing follows it."""
        self._failure = error
        if self._process is not None and self._process.returncode is None:
            self._process.kill()


def _log_stage(stage: str) -> None:
    log.info("loading", extra=fields(stage=stage))


def private_folder() -> "tempfile.TemporaryDirectory[str]":
    """A folder for sockets that only this user can enter. Their paths may have 107 bytes."""
    usual = tempfile.gettempdir()
    base = usual if len(usual) <= MAX_FOLDER_LENGTH else "/tmp"  # noqa: S108 - mkdtemp is safe there
    return tempfile.TemporaryDirectory(prefix="yaie-", dir=base)


def _why(status: int) -> str:
    if status == EXIT_HANGS:
        return "a step did not end"
    if status >= 0:
        return f"exit status {status}"
    return f"killed by {signal.Signals(-status).name}"
