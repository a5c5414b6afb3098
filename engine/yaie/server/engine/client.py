"""AsyncEngine: the client of the engine process.

`submit` returns a `Generation` once the engine has accepted the request, or raises its reason to
refuse. If the engine process dies, a generation that has shown no tokens yet is sent to the next
process (once); the others fail. Every caller that waits gets a result or an error.
"""

import asyncio
import enum
import time
import uuid
from collections.abc import Callable
from typing import Final

from yaie.config import ModelInfo
from yaie.core.messages import (
    Abort,
    Event,
    Generate,
    ResetPrefixCache,
    Stats,
    TiePrefixKeys,
    WatchPrefixes,
)
from yaie.server.engine.generation import Channel, Generation
from yaie.server.engine.prefix_feed import PrefixFeed
from yaie_api import errors
from yaie_api.prefix import Outcome, PrefixUpdate

RESTART_RETRY_AFTER_S: Final = 5.0
MAX_RETRY_AFTER_S: Final = 60.0


class EngineState(enum.StrEnum):
    LOADING = "loading"
    READY = "ready"
    RESTARTING = "restarting"
    FAILED = "failed"
    STOPPED = "stopped"


class AsyncEngine:
    """Owns the live generations and the state of the engine process. `watch_prefixes`: whether it
    should publish which prefixes it has cached.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, *, watch_prefixes: bool = False
    ) -> None:
        self._clock = clock
        self.prefixes = PrefixFeed(wanted=watch_prefixes)
        self._channel: Channel | None = None
        self._live: dict[str, Generation] = {}
        self._due: list[Generation] = []
        self._resets: dict[str, asyncio.Future[None]] = {}
        self._last_seen = clock()
        self._ready = asyncio.Event()
        self.state = EngineState.LOADING
        self.stage, self.stage_detail = "starting", ""
        self.restarts = 0
        self.hangs = False
        self.info: ModelInfo | None = None
        self.stats: Stats | None = None

    @property
    def num_live(self) -> int:
        """Requests that have not ended."""
        return len(self._live)

    @property
    def silence_s(self) -> float:
        """Seconds since the engine process's last message. It sends one at least twice a second."""
        return self._clock() - self._last_seen

    @property
    def retry_after_s(self) -> float:
        """When a refused client should try again: the time that the queue takes at present."""
        if self.state is not EngineState.READY:
            return RESTART_RETRY_AFTER_S
        stats = self.stats
        if stats is None or not stats.completion_rate:
            return 1.0
        return min(max((stats.waiting + 1) / stats.completion_rate, 1.0), MAX_RETRY_AFTER_S)

    async def submit(self, request: Generate) -> Generation:
        """Send a request and wait until the engine has accepted it.

        Raises:
            UnavailableError: the engine is not ready, or died before it answered.
            YaieError: the engine refused the request.

        """
        channel = self._ready_channel()
        generation = Generation(request, self)
        self._live[request.request_id] = generation
        generation.send(channel)
        try:
            await generation.accepted
        except BaseException:
            generation.close()
            raise
        return generation

    async def reset_prefix_cache(self) -> None:
        """Drop the cached prefixes, and return when the engine has done so.

        Raises:
            UnavailableError: the engine is not ready.

        """
        channel = self._ready_channel()
        command = ResetPrefixCache(f"reset-{uuid.uuid4().hex}")
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._resets[command.request_id] = done
        channel.send(command)
        try:
            await done
        finally:
            del self._resets[command.request_id]

    async def wait_ready(self) -> None:
        """Wait until an engine process takes requests."""
        await self._ready.wait()

    def attach(self, channel: Channel, info: ModelInfo) -> None:
        """Use this process, which is ready, and send it the generations that wait."""
        self._channel, self.info, self.state = channel, info, EngineState.READY
        self._ready.set()
        self.heard()
        if self.prefixes.wanted:
            channel.send(WatchPrefixes())
        for generation in list(self._live.values()):
            generation.send(channel)

    def detach(self, state: EngineState) -> None:
        """Stop using the process. Only if another will start, keep what can be sent again."""
        self._channel, self.state, self.stats, self.hangs = None, state, None, False
        self._ready.clear()
        self.prefixes.reset()
        keep = state is EngineState.RESTARTING
        self.restarts += keep
        for generation in list(self._live.values()):
            if not (keep and generation.can_be_sent_again):
                generation.fail(_died())

        for reset in self._resets.values():
            if not reset.done():
                reset.set_exception(_died())

    def heard(self) -> None:
        """Note that the engine process has just sent a message."""
        self._last_seen = self._clock()

    def dispatch(self, event: Event) -> None:
        """Pass an event of the engine to the generation that it belongs to."""
        if isinstance(event, Stats):
            self.stats = event
            return
        if isinstance(event, PrefixUpdate):
            self._take(event)
            return
        generation = self._live.get(event.request_id)
        if generation is not None:
            generation.handle(event)
        elif (reset := self._resets.get(event.request_id)) is not None and not reset.done():
            reset.set_result(None)

    def tie(self, command: TiePrefixKeys) -> None:
        """Have the engine publish prefix keys as long as their tokens are cached."""
        if self._channel is not None:
            self._channel.send(command)

    def _take(self, update: PrefixUpdate) -> None:
        lost = self.prefixes.take(update) is Outcome.NEEDS_SNAPSHOT
        if lost and self._channel is not None:
            self._channel.send(WatchPrefixes())

    def forget(self, generation: Generation, *, abort: bool) -> None:
        """Drop a generation that has ended. `abort`: tell the engine to stop working on it."""
        known = self._live.pop(generation.request_id, None)
        if known is not None and abort and self._channel is not None:
            self._channel.send(Abort(generation.request_id))

    def abort_output(self, generation: Generation, index: int) -> None:
        """Tell the engine to stop working on one output of a generation."""
        if self._channel is not None:
            self._channel.send(Abort(generation.request_id, index))

    def deliver_soon(self, generation: Generation) -> None:
        """Have the generation's `deliver` called soon; one callback serves all that wait."""
        if not self._due:
            asyncio.get_running_loop().call_soon(self._deliver)
        self._due.append(generation)

    def _deliver(self) -> None:
        due, self._due = self._due, []
        for generation in due:
            generation.deliver()

    def _ready_channel(self) -> Channel:
        if self.state is not EngineState.READY or self._channel is None:
            raise errors.UnavailableError(
                f"The engine is {self.state}.", retry_after_s=self.retry_after_s
            )
        return self._channel


def _died() -> errors.UnavailableError:
    return errors.UnavailableError(
        "The engine stopped while it worked on this request.",
        code="engine_died",
        retry_after_s=RESTART_RETRY_AFTER_S,
    )
