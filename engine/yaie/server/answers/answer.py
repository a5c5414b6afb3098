"""The answer to one request: its outputs' deltas as they come, with its measurements.

Every endpoint that generates consumes an `Answer`, streamed or whole; they differ only in how they
write it down. One answer has as many outputs (choices) as the request asked for.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from yaie.core.messages import TokenLogprobs, Tokens
from yaie.server.answers.output import Delta, FinishReason, Output
from yaie.server.engine.generation import FAILED, Generation, Room, failure_of
from yaie.server.metrics import ServerMetrics
from yaie.text.parts import Part, ReasoningPart, TextPart, ToolCall, joined, tool_calls
from yaie_api.errors import YaieError
from yaie_api.http.openai import Usage


class Sink(Protocol):
    """Takes what is new of an answer's outputs. What it raises ends the answer."""

    def text(self, index: int, text: str) -> None:
        """More text of output `index` and nothing else, as nearly everything of a stream is."""

    def delta(self, index: int, delta: Delta) -> None:
        """Anything else that is new of it."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One whole output. The fields are those of `Delta`."""

    index: int
    parts: Sequence[Part]
    finish_reason: FinishReason
    stop_reason: str | int | None = None
    logprobs: tuple[TokenLogprobs, ...] = ()
    token_ids: tuple[int, ...] = ()

    def as_delta(self) -> Delta:
        """All of it at once."""
        return Delta(
            self.parts, self.finish_reason, self.stop_reason, self.logprobs, self.token_ids
        )

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, TextPart))

    @property
    def reasoning(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, ReasoningPart))

    @property
    def tool_calls(self) -> list[ToolCall]:
        return tool_calls(self.parts)


class Answer:
    """The outputs of one accepted generation. `deliver` it once; `usage` grows with it.

    `record` is given the whole text of each output at the end, if the user wants outputs logged.
    `prompt_logprobs` is there from the first delta on, if it was asked for: one entry for each
    token of the prompt but the first.
    """

    def __init__(
        self,
        generation: Generation,
        outputs: Sequence[Output],
        *,
        prompt_token_ids: Sequence[int],
        metrics: ServerMetrics,
        started_s: float,
        record: Callable[[str], None] | None = None,
    ) -> None:
        self._generation = generation
        self._outputs = outputs
        self._metrics = metrics
        self._started_s = started_s
        self._record = record
        self._last_s: list[float | None] = [None] * len(outputs)
        self._cached_tokens = 0
        self._num_open = len(outputs)
        self._sink: Sink | None = None
        self._end: asyncio.Future[None] | None = None
        self.prompt_token_ids = prompt_token_ids
        self.prompt_logprobs: tuple[TokenLogprobs, ...] | None = None

    @property
    def num_outputs(self) -> int:
        return len(self._outputs)

    @property
    def usage(self) -> Usage:
        return Usage(
            prompt_tokens=len(self.prompt_token_ids),
            completion_tokens=sum(output.num_tokens for output in self._outputs),
            cached_tokens=self._cached_tokens,
            reasoning_tokens=sum(output.num_reasoning_tokens for output in self._outputs),
        )

    def close(self) -> None:
        """No more text is wanted. Aborts the generation unless it has ended."""
        self._generation.close()
        if self._end is not None:
            self._end.cancel()

    async def deliver(self, sink: Sink, room: Room | None = None) -> None:
        """Hand everything to `sink` as it comes, from where its tokens arrive; return at the end.
        Messages that show nothing are left out, except the last one of each output.

        Raises:
            EngineError: the engine failed on this request.
            DeadlineExceededError: its time was over.
            UnavailableError: the engine died or gave the request up.

        """
        self._sink = sink
        self._end = asyncio.get_running_loop().create_future()
        outcome = "abort"
        try:
            self._generation.deliver_to(self, room)
            await self._end
        except Exception:
            outcome = "error"
            raise
        finally:
            self._generation.close()
            self._finish(outcome)

    async def whole(self) -> list[Choice]:
        """Every output in one piece, in order.

        Raises:
            EngineError: the engine failed on this request.
            DeadlineExceededError: its time was over.
            UnavailableError: the engine died or gave the request up.

        """
        found = _Collected(self.num_outputs)
        await self.deliver(found)
        return [_choice(index, deltas) for index, deltas in enumerate(found.deltas)]

    def resume(self) -> None:
        """There is room for what was held back."""
        self._generation.deliver()

    def receive(self, tokens: Tokens) -> None:
        """Called by the generation."""
        sink, end, output = self._sink, self._end, self._outputs[tokens.index]
        if sink is None or end is None or end.done() or output.finish_reason is not None:
            return
        try:
            self._note(tokens)
            text = output.text(tokens)
            if text is None:
                self._advance(sink, output, tokens)
            elif text:
                sink.text(tokens.index, text)
        except Exception as error:  # noqa: BLE001 - it is raised where the answer is awaited
            end.set_exception(error)

    def fail(self, error: YaieError) -> None:
        """Called by the generation."""
        if self._end is not None and not self._end.done():
            self._end.set_exception(error)

    def _note(self, tokens: Tokens) -> None:
        if tokens.finish_reason in FAILED:
            raise failure_of(tokens)
        if tokens.cached_tokens:
            self._cached_tokens = max(self._cached_tokens, tokens.cached_tokens)
        if tokens.prompt_logprobs is not None:
            self.prompt_logprobs = tokens.prompt_logprobs
        if tokens.token_ids:
            self._measure(tokens.index, len(tokens.token_ids))

    def _advance(self, sink: Sink, output: Output, tokens: Tokens) -> None:
        delta = output.advance(tokens)
        if delta is None:
            return
        text = delta.only_text
        if text is not None:
            sink.text(tokens.index, text)
            return
        sink.delta(tokens.index, delta)
        if delta.finish_reason is not None:
            self._generation.stop(tokens.index)
            self._num_open -= 1
            if not self._num_open and self._end is not None:
                self._end.set_result(None)

    def _measure(self, index: int, count: int) -> None:
        now = time.monotonic()
        last_s = self._last_s[index]
        if last_s is not None:
            self._metrics.more_tokens(now - last_s, count)
        elif not any(self._last_s):
            self._metrics.first_token(now - self._started_s)
        self._last_s[index] = now

    def _finish(self, outcome: str) -> None:
        """Count each output. `outcome` of those that have not ended by themselves."""
        seconds = time.monotonic() - self._started_s
        for output in self._outputs:
            self._metrics.finished(output.finish_reason or outcome, seconds)
            if self._record is not None:
                self._record(output.raw_text)


class _Collected:
    """A sink that keeps everything."""

    def __init__(self, num_outputs: int) -> None:
        self.deltas: list[list[Delta]] = [[] for _ in range(num_outputs)]

    def text(self, index: int, text: str) -> None:
        self.delta(index, Delta((TextPart(text),)))

    def delta(self, index: int, delta: Delta) -> None:
        self.deltas[index].append(delta)


def _choice(index: int, deltas: Sequence[Delta]) -> Choice:
    last = deltas[-1]
    return Choice(
        index=index,
        parts=joined([part for delta in deltas for part in delta.parts]),
        finish_reason=last.finish_reason or "stop",
        stop_reason=last.stop_reason,
        logprobs=tuple(one for delta in deltas for one in delta.logprobs),
        token_ids=tuple(one for delta in deltas for one in delta.token_ids),
    )
