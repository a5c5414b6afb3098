"""AsyncEngine: the engine as the HTTP process sees it. A generation is an async iterator.

`submit` returns once the engine has accepted the request, or raises why not. Closing a generation
before its end aborts it. When the engine process dies, generations that have shown nothing yet wait
for the next process (once); the others end with an error. No waiter is ever left behind.
"""

import asyncio
import enum
import time
from collections.abc import AsyncIterator, Callable
from typing import Final, Protocol, Self

from yaie.config import ModelInfo
from yaie.core.messages import (
    Abort,
    Accepted,
    Command,
    Event,
    Generate,
    Rejected,
    Stats,
    Tokens,
)
from yaie_api import errors

RESTART_RETRY_AFTER_S: Final = 5.0
MAX_SENDS: Final = 2
"""A request that was in the engine when it died is tried once more, not for ever."""


class EngineState(enum.StrEnum):
    LOADING = "loading"
    READY = "ready"
    RESTARTING = "restarting"
    FAILED = "failed"
    STOPPED = "stopped"


class Channel(Protocol):
    """Carries commands to the engine process."""

    def send(self, command: Command) -> None: ...


class AsyncEngine:
    """Owner of the live generations and of what is known about the engine process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._channel: Channel | None = None
        self._live: dict[str, Generation] = {}
        self._last_seen = clock()
        self._idle = asyncio.Event()
        self._idle.set()
        self.state = EngineState.LOADING
        self.stage = "starting"
        self.restarts = 0
        self.info: ModelInfo | None = None
        self.stats: Stats | None = None

    @property
    def num_live(self) -> int:
        """Requests that have not ended."""
        return len(self._live)

    @property
    def silence_s(self) -> float:
        """Time since the engine process was last heard. It beats at least twice a second."""
        return self._clock() - self._last_seen

    async def submit(self, request: Generate) -> "Generation":
        """Send a request and wait until the engine has accepted it.

        Raises:
            UnavailableError: the engine is not ready, or died before it answered.
            YaieError: the engine's reason to refuse.

        """
        if self.state is not EngineState.READY or self._channel is None:
            raise errors.UnavailableError(
                f"The engine is {self.state}.", retry_after_s=RESTART_RETRY_AFTER_S
            )
        generation = Generation(request, self)
        self._live[request.request_id] = generation
        self._idle.clear()
        generation.send(self._channel)
        try:
            await generation.accepted()
        except BaseException:
            generation.close()
            raise
        return generation

    async def wait_idle(self) -> None:
        """Until no request is live."""
        await self._idle.wait()

    def attach(self, channel: Channel, info: ModelInfo) -> None:
        """A process is ready: send it what waits."""
        self._channel, self.info, self.state = channel, info, EngineState.READY
        self.heard()
        for generation in list(self._live.values()):
            generation.send(channel)

    def detach(self, state: EngineState) -> None:
        """The process has ended (or never came up): fail or keep each generation."""
        self._channel, self.state, self.stats = None, state, None
        keep = state is EngineState.RESTARTING
        self.restarts += keep
        for generation in list(self._live.values()):
            if not (keep and generation.can_be_sent_again):
                generation.fail(
                    errors.UnavailableError(
                        "The engine stopped while it worked on this request.",
                        code="engine_died",
                        retry_after_s=RESTART_RETRY_AFTER_S,
                    )
                )

    def heard(self) -> None:
        self._last_seen = self._clock()

    def dispatch(self, event: Event) -> None:
        """Hand an event of the engine to the generation that it belongs to."""
        if isinstance(event, Stats):
            self.stats = event
            return
        generation = self._live.get(event.request_id)
        if generation is not None:
            generation.handle(event)

    def forget(self, generation: "Generation", *, abort: bool) -> None:
        """Called by a generation at its end. `abort`: the engine still works on it."""
        known = self._live.pop(generation.request_id, None)
        if known is not None and abort and self._channel is not None:
            self._channel.send(Abort(generation.request_id))
        if not self._live:
            self._idle.set()


class Generation(AsyncIterator[Tokens]):
    """One request's tokens. Iterating yields all that has arrived since, merged into one message.

    Raises from `accepted` and from iteration: the YaieError that ended the request.
    """

    def __init__(self, request: Generate, engine: AsyncEngine) -> None:
        self.request_id = request.request_id
        self._request = request
        self._engine = engine
        self._sends = 0
        self._accepted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._arrived: list[Tokens] = []
        self._waiter: asyncio.Future[None] | None = None
        self._error: errors.YaieError | None = None
        self._ended = False
        self._shown = False

    @property
    def can_be_sent_again(self) -> bool:
        """Nothing of it has been shown, and it was not in two processes that died."""
        return not self._shown and not self._ended and self._sends < MAX_SENDS

    def send(self, channel: Channel) -> None:
        self._sends += 1
        channel.send(self._request)

    async def accepted(self) -> None:
        await self._accepted

    def handle(self, event: Accepted | Rejected | Tokens) -> None:
        if isinstance(event, Accepted):
            if not self._accepted.done():
                self._accepted.set_result(None)
        elif isinstance(event, Rejected):
            self.fail(error_of(event))
        else:
            self._shown = True
            self._arrived.append(event)
            if event.finish_reason is not None:
                self._end(abort=False)
            self._wake()

    def fail(self, error: errors.YaieError) -> None:
        self._error = error
        self._end(abort=False)
        if not self._accepted.done():
            self._accepted.set_exception(error)
        self._wake()

    def close(self) -> None:
        """No more tokens are wanted: abort the request unless it has ended."""
        self._end(abort=True)
        if not self._accepted.done():
            self._accepted.cancel()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Tokens:
        while not self._arrived:
            if self._error is not None:
                raise self._error
            if self._ended:
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        arrived, self._arrived = self._arrived, []
        if len(arrived) > 1 and arrived[-1].finish_reason in ("error", "abort"):
            self._arrived = [arrived.pop()]  # what came before it is still shown
        return arrived[0] if len(arrived) == 1 else merged(arrived)

    def _end(self, *, abort: bool) -> None:
        if not self._ended:
            self._ended = True
            self._engine.forget(self, abort=abort)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def merged(messages: list[Tokens]) -> Tokens:
    """Several messages of one request as one: all ids, and the end that the last one tells."""
    last = messages[-1]
    return Tokens(
        request_id=last.request_id,
        token_ids=tuple(i for message in messages for i in message.token_ids),
        finish_reason=last.finish_reason,
        stop_token_id=last.stop_token_id,
        cached_tokens=max(message.cached_tokens for message in messages),
        error=last.error,
    )


_ERROR_OF_STATUS: Final[dict[int, type[errors.YaieError]]] = {
    400: errors.InvalidRequestError,
    404: errors.NotFoundError,
    413: errors.PayloadTooLargeError,
    429: errors.OverloadedError,
    503: errors.UnavailableError,
}


def error_of(rejected: Rejected) -> errors.YaieError:
    """The engine's refusal as an error of the tree."""
    kind = _ERROR_OF_STATUS.get(rejected.status, errors.EngineError)
    return kind(
        rejected.message,
        param=rejected.param,
        code=rejected.code,
        retry_after_s=rejected.retry_after_s,
    )
