"""Supervises the engine process: starts it, watches it, and starts it again when it dies.

A process that dies while it serves is replaced, up to `max_deaths` times within `window_s`. If it
cannot load its model, or dies more often, the server ends with the reason. If a step hangs, the
process ends itself (`yaie.runtime.process.watchdog`); if it sends nothing at all, the supervisor
kills it. An engine process ends when its standard input closes, so it never outlives the HTTP
process.
"""

import asyncio
import logging
import os
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

from yaie.config import ModelInfo
from yaie.ipc.channel import EXIT_HANGS, Located
from yaie.server.engine.api_server_pool import ApiServerPool
from yaie.server.engine.client import AsyncEngine, EngineState
from yaie.server.engine.output_handler import OutputHandler
from yaie.server.engine.private_folder import private_folder
from yaie.server.options import SILENT_S
from yaie_api.errors import UnavailableError, YaieError
from yaie_api.logs import fields
from yaie_api.names import ENV_API_KEY, ENV_PREFIX_KEY

log = logging.getLogger(__name__)

STOP_GRACE_S: Final = 5.0
POLL_S: Final = 0.5
SILENT_LOADING_S: Final = 120.0
"""While the model loads, libraries may hold the interpreter's lock for a long time."""
_SECRETS: Final = (ENV_API_KEY, ENV_PREFIX_KEY)
"""Variables that only HTTP processes need."""
LAST_WORDS_S: Final = 0.05
"""How long to wait for the messages that a process sent just before its end."""


class Supervisor:
    """Runs an engine process, and a new one after each death.

    Args:
        command: returns the argument list of an engine process that connects to an address.
        engine: updated with the process's messages, and with its start and end.
        on_located: awaited when the model's folder is known (loads the tokenizer).
        on_ready: awaited before requests are taken.
        max_deaths: deaths within `window_s` after which the server gives up.
        silent_s: a serving process that sends nothing for this long is killed.
        api_servers: the other HTTP processes that the engine process serves.

    """

    def __init__(
        self,
        command: Callable[[str], Sequence[str]],
        engine: AsyncEngine,
        on_located: Callable[[Located], Awaitable[None]],
        on_ready: Callable[[ModelInfo], Awaitable[None]],
        *,
        max_deaths: int = 3,
        window_s: float = 600.0,
        backoff_s: float = 1.0,
        silent_s: float = SILENT_S,
        api_servers: ApiServerPool | None = None,
    ) -> None:
        self._outputs = OutputHandler(engine, on_located, on_ready, self._fail, _log_stage)
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
        self._last_words = ""
        self._starts = 0

    async def run(self) -> None:
        """Run engine processes until `stop`.

        Raises:
            UnavailableError: the engine cannot be kept alive.

        """
        try:
            with private_folder() as folder:
                while not self._stopping:
                    status = await self._one_process(folder)
                    if not self._stopping:
                        await self._after_death(status)
        finally:
            self._started.set()

    async def started(self) -> None:
        """Wait until `run` has started the first process, or has failed to."""
        await self._started.wait()

    async def stop(self) -> None:
        """End the engine process by closing its standard input. Kill it if it has not ended after
        `STOP_GRACE_S`, or at once while it is loading: it has nothing to finish then.
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
        self._outputs.listen(address)
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command(self._api_servers.listen(address)),
                stdin=asyncio.subprocess.PIPE,
                env={name: text for name, text in os.environ.items() if name not in _SECRETS},
            )
            self._started.set()
            return await self._watch(self._process)
        finally:
            await asyncio.sleep(LAST_WORDS_S)
            self._outputs.close()

    async def _watch(self, process: asyncio.subprocess.Process) -> int:
        """Wait until a process ends. Kill it if two checks in a row find it silent: after a pause
        of this process, the first check runs before the messages that have come are read.
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
        why, self._last_words = self._last_words or _why(status), ""
        self._deaths = [t for t in self._deaths if time.monotonic() - t < self._window_s]
        self._deaths.append(time.monotonic())
        give_up = self._failure is not None or len(self._deaths) > self._max_deaths
        if give_up or not (served or self._engine.restarts):
            self._detach(EngineState.FAILED)
            raise self._failure or UnavailableError(f"The engine process ended: {why}.")
        log.error("engine died, starting it again", extra=fields(status=why))
        self._detach(EngineState.RESTARTING)
        await asyncio.sleep(self._backoff_s * 2 ** (len(self._deaths) - 1))

    def _detach(self, state: EngineState) -> None:
        self._engine.detach(state)
        self._api_servers.detach(state)

    def _fail(self, error: YaieError) -> None:
        """Kill the process and start no other: it cannot serve, or its tokenizer cannot be read.

        A process that has served ends by itself: its last words are kept, and it is replaced.
        """
        if self._engine.state is EngineState.READY:
            self._last_words = error.message.removesuffix(".")
            return
        self._failure = error
        if self._process is not None and self._process.returncode is None:
            self._process.kill()


def _log_stage(stage: str) -> None:
    log.info("loading", extra=fields(stage=stage))


def _why(status: int) -> str:
    if status == EXIT_HANGS:
        return "a step did not end"
    if status >= 0:
        return f"exit status {status}"
    return f"killed by {signal.Signals(-status).name}"
