"""Follows the engine processes, one after the other: what they say updates `AsyncEngine`.

Of several HTTP processes one starts and watches the engine (`yaie.server.engine.supervisor`); all
of them follow it in the same way.
"""

import asyncio
from collections.abc import Awaitable, Callable

from yaie.config import ModelInfo
from yaie.ipc.channel import Beat, EngineChannel, Events, Failed, FromEngine, Loading, Ready
from yaie.server.engine.client import AsyncEngine
from yaie_api.errors import UnavailableError, YaieError


class Follower:
    """Follows one engine process at a time.

    Args:
        engine: told what the process says.
        on_ready: awaited before requests are taken (loads the tokenizer).
        on_failure: called when the process, or `on_ready`, cannot go on.
        on_stage: told the stages of the process's start.

    """

    def __init__(
        self,
        engine: AsyncEngine,
        on_ready: Callable[[ModelInfo], Awaitable[None]],
        on_failure: Callable[[YaieError], None],
        on_stage: Callable[[str], None],
    ) -> None:
        self._engine = engine
        self._on_ready = on_ready
        self._on_failure = on_failure
        self._on_stage = on_stage
        self._channel: EngineChannel | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def follow(self, address: str) -> None:
        """Listen where the next process will connect."""
        self.leave()
        self._channel = EngineChannel(address, self._receive)
        self._engine.heard()

    def leave(self) -> None:
        """Hand on the last words, and listen no more."""
        channel, self._channel = self._channel, None  # a last word that says ready comes too late
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
            self._engine.stage = message.stage
            self._on_stage(message.stage)
        elif isinstance(message, Failed):
            self._on_failure(UnavailableError(message.message))
        elif isinstance(message, Ready):
            self._hold(asyncio.get_running_loop().create_task(self._ready(message.info)))

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
        """The event loop keeps weak references only."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
