"""Receives what the engine process sends, and updates `AsyncEngine` with it.

Every HTTP process of a server has one. The first HTTP process also starts and watches the engine
process (`yaie.server.engine.supervisor`); the others only receive.
"""

import asyncio
from collections.abc import Awaitable, Callable

from yaie.config import ModelInfo
from yaie.ipc.channel import (
    Beat,
    EngineChannel,
    Events,
    Failed,
    FromEngine,
    Loading,
    Located,
    Ready,
)
from yaie.server.engine.client import AsyncEngine
from yaie_api.errors import UnavailableError, YaieError


class OutputHandler:
    """Receives the messages of one engine process at a time.

    Args:
        engine: updated with every message.
        on_located: awaited when the model's folder is known (it loads the tokenizer).
        on_ready: awaited before the engine takes requests.
        on_failure: called when the process, `on_located` or `on_ready` cannot go on.
        on_stage: called with the name of each stage of the process's start.

    """

    def __init__(
        self,
        engine: AsyncEngine,
        on_located: Callable[[Located], Awaitable[None]],
        on_ready: Callable[[ModelInfo], Awaitable[None]],
        on_failure: Callable[[YaieError], None],
        on_stage: Callable[[str], None],
    ) -> None:
        self._engine = engine
        self._on_located = on_located
        self._on_ready = on_ready
        self._on_failure = on_failure
        self._on_stage = on_stage
        self._channel: EngineChannel | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def listen(self, address: str) -> None:
        """Listen where the next engine process will connect, and nowhere else."""
        self.close()
        self._channel = EngineChannel(address, self._receive)
        self._engine.heard()

    def close(self) -> None:
        """Handle the messages that have already arrived, and stop listening."""
        # Before the channel closes: if its last message is Ready, `_ready` must not attach it.
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    def _receive(self, message: FromEngine) -> None:
        self._engine.heard()
        if isinstance(message, Events):
            for event in message.events:
                self._engine.dispatch(event)
        elif isinstance(message, Beat):
            self._engine.hangs = message.hangs
        elif isinstance(message, Loading):
            is_new = message.stage != self._engine.stage
            self._engine.stage, self._engine.stage_detail = message.stage, message.detail
            if is_new:
                self._on_stage(message.stage)
        elif isinstance(message, Located):
            self._hold(asyncio.get_running_loop().create_task(self._located(message)))
        elif isinstance(message, Failed):
            self._on_failure(UnavailableError(message.message))
        elif isinstance(message, Ready):
            self._hold(asyncio.get_running_loop().create_task(self._ready(message.info)))

    async def _located(self, message: Located) -> None:
        try:
            await self._on_located(message)
        except YaieError as error:
            self._on_failure(error)

    async def _ready(self, info: ModelInfo) -> None:
        channel = self._channel
        try:
            await self._on_ready(info)
        except YaieError as error:
            self._on_failure(error)
            return
        if channel is self._channel and channel is not None:
            self._engine.attach(channel, info)

    def _hold(self, task: asyncio.Task[None]) -> None:
        """Keep a reference to the task: the event loop has only a weak one."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
