"""One request in the engine, seen from the HTTP process: it passes the tokens to a receiver.

A request has one output or several (`n`); each message names the output that it belongs to. An
output ends once: with its last message, by `stop` (its text met a stop string), or with the whole
request.

Messages that arrive between two turns of the event loop are merged into one for each output, so an
overloaded process does less work for each token. A receiver is called directly: no task is woken.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final, Protocol, Self

from yaie.core.messages import Accepted, Command, Generate, Rejected, Tokens
from yaie.core.outputs import GRAMMAR, NO_TOKEN_ALLOWED
from yaie_api import errors

MAX_SENDS: Final = 2
"""A request may have killed the engine that died with it, so it is sent only once more."""


class Channel(Protocol):
    """Sends commands to the engine process."""

    def send(self, command: Command) -> None: ...


class Owner(Protocol):
    """Keeps the live generations of an engine (`AsyncEngine`)."""

    def forget(self, generation: "Generation", *, abort: bool) -> None:
        """Called once, when it has ended. `abort`: the engine still works on the request."""

    def abort_output(self, generation: "Generation", index: int) -> None:
        """Called when one of several outputs is no longer wanted."""

    def deliver_soon(self, generation: "Generation") -> None:
        """Called to have `deliver` called once, after the messages that are being handled."""


class Room(Protocol):
    """The buffer that a receiver writes into.

    Attributes:
        is_full: while it is true, messages should wait.
        on_room: called when it is no longer full.

    """

    is_full: bool
    on_room: Callable[[], None]


class Receiver(Protocol):
    """Takes the tokens of a generation, or its error. Its methods never raise."""

    def receive(self, tokens: Tokens) -> None:
        """Take the tokens of one output that came since the last call."""

    def fail(self, error: errors.YaieError) -> None:
        """Take the error that ended the request, after its last message."""


class Generation(AsyncIterator[Tokens]):
    """The messages of one request. Use `deliver_to`, or iterate over it; not both.

    `accepted` is done when the engine has accepted the request. Awaiting it, and iteration, raise
    the YaieError that ended the request. `close` aborts a request that has not ended.
    """

    def __init__(self, request: Generate, owner: Owner) -> None:
        self.request_id = request.request_id
        self._request = request
        self._owner = owner
        self._sends = 0
        self.accepted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._open = set(range(request.sampling.n))
        self._arrived: list[Tokens] = []
        self._merged: list[Tokens] = []
        self._receiver: Receiver | None = None
        self._room: Room | None = None
        self._is_due = False
        self._waiter: asyncio.Future[None] | None = None
        self._error: errors.YaieError | None = None
        self._ended = False
        self._shown = False

    @property
    def can_be_sent_again(self) -> bool:
        """Whether the next process may get it: no token was shown, and it was sent only once."""
        return not self._shown and not self._ended and self._sends < MAX_SENDS

    def send(self, channel: Channel) -> None:
        self._sends += 1
        channel.send(self._request)

    def handle(self, event: Accepted | Rejected | Tokens) -> None:
        if isinstance(event, Tokens):
            if event.index not in self._open:
                return
            self._shown = True
            self._arrived.append(event)
            if event.finish_reason is not None:
                self._open.discard(event.index)
                if not self._open:
                    self._end(abort=False)
            self._wake()
        elif isinstance(event, Rejected):
            self.fail(error_of(event))
        elif not self.accepted.done():
            self.accepted.set_result(None)

    def fail(self, error: errors.YaieError) -> None:
        self._error = error
        self._end(abort=False)
        if not self.accepted.done():
            self.accepted.set_exception(error)
        self._wake()

    def deliver_to(self, receiver: Receiver, room: Room | None) -> None:
        """Pass the messages, those that wait included, to `receiver` while there is room."""
        self._receiver, self._room = receiver, room
        self.deliver()

    def deliver(self) -> None:
        """Pass on the messages that wait, unless there is no room for them."""
        self._is_due = False
        receiver, room = self._receiver, self._room
        if receiver is None or (room is not None and room.is_full):
            return
        arrived, self._arrived = self._arrived, []
        if len(arrived) == 1:
            receiver.receive(arrived[0])
        else:
            for tokens in by_output(arrived):
                receiver.receive(tokens)
        if self._error is not None:
            receiver.fail(self._error)

    def stop(self, index: int) -> None:
        """End this output: its tokens are no longer wanted. The others go on."""
        if index not in self._open:
            return
        self._open.discard(index)
        self._arrived = [tokens for tokens in self._arrived if tokens.index != index]
        self._merged = [tokens for tokens in self._merged if tokens.index != index]
        if self._open:
            self._owner.abort_output(self, index)
        else:
            self._end(abort=True)

    def close(self) -> None:
        """End the request: its tokens are no longer wanted. Abort it unless it has ended."""
        self._end(abort=True)
        if not self.accepted.done():
            self.accepted.cancel()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Tokens:
        if self._merged:
            return self._merged.pop(0)
        while not self._arrived:
            if self._error is not None:
                raise self._error
            if self._ended:
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        if len(self._arrived) > 1:
            self._merged, self._arrived = by_output(self._arrived), []
            return self._merged.pop(0)
        return self._arrived.pop()

    def _end(self, *, abort: bool) -> None:
        if not self._ended:
            self._ended = True
            self._owner.forget(self, abort=abort)

    def _wake(self) -> None:
        if self._receiver is not None:
            if not self._is_due:
                self._is_due = True
                self._owner.deliver_soon(self)
        elif self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def by_output(messages: Sequence[Tokens]) -> list[Tokens]:
    """Merge the messages of each output; the outputs stay in the order of their first messages.

    The last message of an output that failed is not merged, so that the tokens before it are shown.
    """
    found: dict[int, list[Tokens]] = {}
    for message in messages:
        found.setdefault(message.index, []).append(message)
    failed = [some.pop() for some in found.values() if some[-1].finish_reason in FAILED]
    return [merged(some) for some in found.values() if some] + failed


def merged(messages: Sequence[Tokens]) -> Tokens:
    """Merge messages of one output: all their token ids, and the end that the last one has."""
    if len(messages) == 1:
        return messages[0]
    last = messages[-1]
    return Tokens(
        request_id=last.request_id,
        token_ids=tuple(i for message in messages for i in message.token_ids),
        finish_reason=last.finish_reason,
        stop_token_id=last.stop_token_id,
        cached_tokens=max(message.cached_tokens for message in messages),
        error=last.error,
        index=last.index,
        logprobs=tuple(one for message in messages for one in message.logprobs),
        prompt_logprobs=_first(message.prompt_logprobs for message in messages),
        pooled=last.pooled,
        error_code=last.error_code,
        queued_s=_first(message.queued_s for message in messages),
    )


def _first(values: Any) -> Any:
    return next((value for value in values if value is not None), None)


FAILED: Final = ("error", "abort")
"""Finish reasons of an output that is not complete."""
_FAULTS_OF_REQUEST: Final = (GRAMMAR.code, NO_TOKEN_ALLOWED.code)
"""Errors that the request causes by itself: sent again, it would fail again."""
_ERROR_OF_STATUS: Final[dict[int, type[errors.YaieError]]] = {
    400: errors.InvalidRequestError,
    404: errors.NotFoundError,
    413: errors.PayloadTooLargeError,
    429: errors.OverloadedError,
    503: errors.UnavailableError,
    504: errors.DeadlineExceededError,
}


def error_of(rejected: Rejected) -> errors.YaieError:
    """Return the error that the engine's refusal stands for."""
    kind = _ERROR_OF_STATUS.get(rejected.status, errors.EngineError)
    return kind(
        rejected.message,
        param=rejected.param,
        code=rejected.code,
        retry_after_s=rejected.retry_after_s,
    )


def failure_of(tokens: Tokens) -> errors.YaieError:
    """Return the error that ended an output before it was complete."""
    if tokens.finish_reason == "abort":
        return errors.UnavailableError("The engine gave this request up.", retry_after_s=1.0)
    message = tokens.error or "The engine failed on this request."
    if tokens.error_code == errors.DeadlineExceededError.default_code:
        return errors.DeadlineExceededError(message)
    if tokens.error_code in _FAULTS_OF_REQUEST:
        return errors.InvalidRequestError(message, code=tokens.error_code)
    return errors.EngineError(message, code=tokens.error_code)
