"""The answer to one prompt: it turns tokens into deltas of its outputs, and measures them.

Every endpoint that generates text reads an `Answer`, whole or as a stream, and writes it in its
API's form. An answer has as many outputs (choices) as the request asked for.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from yaie.core.messages import TokenLogprobs, Tokens
from yaie.server import figures
from yaie.server.answers.output import Delta, FinishReason, Output
from yaie.server.answers.prefix_tracker import PrefixTracker
from yaie.server.answers.replay import Recorder
from yaie.server.engine.generation import FAILED, Generation, Room, failure_of
from yaie.server.metrics import ServerMetrics
from yaie.text.parts import Part, ReasoningPart, TextPart, ToolCall, joined, tool_calls
from yaie_api.errors import UnavailableError, YaieError
from yaie_api.http.openai import Usage


class Sink(Protocol):
    """Receives the deltas of an answer's outputs. If it raises, the answer ends with that error."""

    def text(self, index: int, text: str) -> None:
        """Take more text of output `index`. Most deltas of a stream are only text."""

    def delta(self, index: int, delta: Delta) -> None:
        """Take any other delta of it."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A complete output. The fields are those of `Delta`."""

    index: int
    parts: Sequence[Part]
    finish_reason: FinishReason
    stop_reason: str | int | None = None
    logprobs: tuple[TokenLogprobs, ...] = ()
    token_ids: tuple[int, ...] = ()

    def as_delta(self) -> Delta:
        """Return the whole output as one delta."""
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
    """The outputs of one accepted generation. Call `deliver` or `whole` once; `usage` then grows.

    `record` is called with the text of each output at its end, if outputs are logged. `tracker` is
    told what comes, if prefix keys are published. `recorder`: of a stream that another engine can
    continue.
    `prompt_logprobs` is set before the first delta, if the request asked for it: one entry for each
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
        submitted_s: float,
        record: Callable[[str], None] | None = None,
        tracker: PrefixTracker | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        self._generation = generation
        self._outputs = outputs
        self._metrics = metrics
        self._started_s = started_s
        self._submitted_s = submitted_s
        self._record = record
        self._tracker = tracker
        self._recorder = recorder
        self._first_s: list[float | None] = [None] * len(outputs)
        self._last_s: list[float | None] = [None] * len(outputs)
        self._ttft_s: float | None = None
        self._queue_s: float | None = None
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
        """End the answer, and abort the generation unless it has ended."""
        self._generation.close()
        if self._end is not None:
            self._end.cancel()

    async def deliver(self, sink: Sink, room: Room | None = None) -> None:
        """Pass every delta to `sink`, in the callback that receives its tokens; return at the end.
        A delta without content is left out, unless it is the last one of its output.

        Raises:
            EngineError: the engine failed on this request.
            DeadlineExceededError: its time limit has passed.
            UnavailableError: the engine died, or aborted the request.

        """
        self._sink = sink
        self._end = asyncio.get_running_loop().create_future()
        outcome = "abort"
        try:
            if self._recorder is not None:
                self._catch_up(self._recorder, sink)
            self._generation.deliver_to(self, room)
            await self._end
        except Exception as error:
            outcome = "error"
            if self._recorder is not None and isinstance(error, UnavailableError):
                self._recorder.lost()
            raise
        finally:
            self._generation.close()
            self._finish(outcome)

    async def whole(self) -> list[Choice]:
        """Wait for the end and return every output, in order.

        Raises:
            EngineError: the engine failed on this request.
            DeadlineExceededError: its time limit has passed.
            UnavailableError: the engine died, or aborted the request.

        """
        found = _Collected(self.num_outputs)
        await self.deliver(found)
        return [_choice(index, deltas) for index, deltas in enumerate(found.deltas)]

    def resume(self) -> None:
        """Deliver the messages that had to wait: there is room now."""
        self._generation.deliver()

    def receive(self, tokens: Tokens) -> None:
        """Pass the delta of these tokens to the sink. The generation calls this."""
        sink, end, output = self._sink, self._end, self._outputs[tokens.index]
        if sink is None or end is None or end.done() or output.finish_reason is not None:
            return
        try:
            self._note(tokens)
            if self._recorder is None:
                self._show(sink, output, tokens)
                return
            self._recorder.begin(tokens)
            self._show(sink, output, tokens)
            self._recorder.end(is_last=output.finish_reason is not None)
        except Exception as error:  # noqa: BLE001 - it is raised where the answer is awaited
            end.set_exception(error)

    def _show(self, sink: Sink, output: Output, tokens: Tokens) -> None:
        """Pass on what these tokens add."""
        text = output.text(tokens)
        if text is None:
            self._advance(sink, output, tokens)
        elif text:
            sink.text(tokens.index, text)
            if self._tracker is not None:
                self._tracker.text(text)

    def _catch_up(self, recorder: Recorder, sink: Sink) -> None:
        """Go through what the client has of an answer that another engine began."""
        recorder.opened()
        (output,) = self._outputs
        self._cached_tokens = recorder.cached_tokens or 0

        def take(tokens: Tokens) -> None:
            if self._tracker is not None:
                self._tracker.resume(tokens.token_ids)
            self._show(sink, output, tokens)

        recorder.catch_up(take)

    def fail(self, error: YaieError) -> None:
        """End the answer with this error. The generation calls this."""
        if self._end is not None and not self._end.done():
            self._end.set_exception(error)

    def _note(self, tokens: Tokens) -> None:
        if tokens.finish_reason in FAILED:
            raise failure_of(tokens)
        if tokens.cached_tokens and not (self._recorder and self._recorder.pieces):
            self._cached_tokens = max(self._cached_tokens, tokens.cached_tokens)
        if tokens.prompt_logprobs is not None:
            self.prompt_logprobs = tokens.prompt_logprobs
        if tokens.token_ids:
            self._measure(tokens)
            if self._tracker is not None:
                self._tracker.take(tokens.token_ids)

    def _advance(self, sink: Sink, output: Output, tokens: Tokens) -> None:
        delta = output.advance(tokens)
        if delta is None:
            return
        if self._tracker is not None:
            self._tracker.parts(delta.parts)
        text = delta.only_text
        if text is not None:
            sink.text(tokens.index, text)
            return
        sink.delta(tokens.index, delta)
        if delta.finish_reason is not None:
            self._generation.stop(tokens.index)
            if self._tracker is not None:
                self._tracker.finish(output.num_tokens)
            self._num_open -= 1
            if not self._num_open and self._end is not None:
                self._end.set_result(None)

    def _measure(self, tokens: Tokens) -> None:
        now = time.monotonic()
        last_s = self._last_s[tokens.index]
        if last_s is not None:
            self._metrics.more_tokens(now - last_s, len(tokens.token_ids))
        else:
            self._measure_first(tokens, now)
        self._last_s[tokens.index] = now

    def _measure_first(self, tokens: Tokens, now: float) -> None:
        """Measure what is known with an output's first tokens: once for each request, most of it.

        The engine measures how long the prompt was queued; the rest of the time since it was sent
        there went into the prompt.
        """
        if not any(self._first_s):
            self._ttft_s = now - self._started_s
            self._metrics.first_token(self._ttft_s)
            self._queue_s = tokens.queued_s
            if tokens.queued_s is not None:
                self._metrics.queued(tokens.queued_s)
                self._metrics.prefilled(now - self._submitted_s - tokens.queued_s)
        self._first_s[tokens.index] = now

    def _finish(self, outcome: str) -> None:
        """Count each output by its finish reason, or `outcome` if it has none; note what all of
        them took.
        """
        usage = self.usage
        figures.note(
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            cached_tokens=usage.cached_tokens,
            ttft_s=self._ttft_s,
            stages=figures.Stages(
                self._submitted_s,
                self._queue_s,
                min((one for one in self._first_s if one is not None), default=None),
                max((one for one in self._last_s if one is not None), default=None),
                tuple(output.finish_reason or outcome for output in self._outputs),
            ),
        )
        seconds = time.monotonic() - self._started_s
        self._metrics.prompt(len(self.prompt_token_ids))
        for output, first_s, last_s in zip(self._outputs, self._first_s, self._last_s, strict=True):
            self._metrics.finished(output.finish_reason or outcome, seconds)
            if first_s is not None and last_s is not None:
                self._metrics.decoded(last_s - first_s, output.num_tokens)
            if self._record is not None:
                self._record(output.raw_text)


class _Collected:
    """A sink that keeps every delta."""

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
