"""Requests of `LLM` on their way: they collect what the loop says and know when they are done."""

from collections.abc import Sequence
from typing import Protocol

from yaie.core.messages import Abort, Generate, TokenLogprobs, Tokens
from yaie.core.request import SamplingParams
from yaie.offline.outputs import CompletionOutput, Logprob, Logprobs, RequestOutput
from yaie.text.detokenizer import TextStream
from yaie.text.prompt.tokenizer import Tokenizer
from yaie_api.errors import EngineError, InvalidRequestError


class Request(Protocol):
    """What the loop's caller needs to know of a request."""

    @property
    def message(self) -> Generate: ...

    @property
    def done(self) -> bool: ...

    def push(self, event: Tokens) -> Abort | None:
        """Take what is new; returns what the loop should stop computing."""


class PooledRequest:
    """One prompt that becomes a vector."""

    def __init__(self, message: Generate) -> None:
        self.message = message
        self.done = False
        self.pooled = b""

    def push(self, event: Tokens) -> Abort | None:
        """Take the vector.

        Raises:
            EngineError: the engine failed on this request.

        """
        if event.finish_reason == "error":
            raise EngineError(event.error or "The engine failed on this request.")
        self.pooled = event.pooled or self.pooled
        self.done = event.finish_reason is not None
        return None


class TextRequest:
    """One prompt and its outputs. `done`: every output has ended."""

    def __init__(self, message: Generate, prompt: str | None, tokenizer: Tokenizer | None) -> None:
        if message.sampling.stop and tokenizer is None:
            raise InvalidRequestError("stop strings need a tokenizer.", param="stop")
        self.message = message
        self._prompt = prompt
        self._tokenizer = tokenizer
        self._outputs = [
            _Output(index, message.sampling, tokenizer) for index in range(message.sampling.n)
        ]
        self.done = False
        self._cached_tokens = 0
        self._prompt_logprobs: tuple[TokenLogprobs, ...] | None = None

    def push(self, event: Tokens) -> Abort | None:
        """Take new tokens of one output. One that met a stop string is computed no further."""
        self._cached_tokens = max(self._cached_tokens, event.cached_tokens)
        if event.prompt_logprobs is not None:
            self._prompt_logprobs = event.prompt_logprobs
        output = self._outputs[event.index]
        if output.done or not output.push(event):
            return None
        self.done = all(one.done for one in self._outputs)
        return None if event.finish_reason else Abort(event.request_id, event.index)

    def output(self) -> RequestOutput:
        """Return the finished request's outputs."""
        return RequestOutput(
            request_id=self.message.request_id,
            prompt=self._prompt,
            prompt_token_ids=self.message.prompt_token_ids,
            outputs=tuple(output.completion() for output in self._outputs),
            num_cached_tokens=self._cached_tokens,
            prompt_logprobs=self._of_prompt(),
        )

    def _of_prompt(self) -> tuple[Logprobs | None, ...] | None:
        if self.message.sampling.prompt_logprobs is None:
            return None
        entries = self._prompt_logprobs or ()
        return (None, *(readable(entry, self._tokenizer) for entry in entries))


class _Output:
    """One output of a prompt: collects tokens, makes text, knows when it is done."""

    def __init__(self, index: int, sampling: SamplingParams, tokenizer: Tokenizer | None) -> None:
        self.done = False
        self._index = index
        self._sampling = sampling
        self._tokenizer = tokenizer
        self._stream = None if tokenizer is None else TextStream(tokenizer, sampling)
        self._watched = bool(sampling.stop)
        self._token_ids: list[int] = []
        self._logprobs: list[TokenLogprobs] = []
        self._text: list[str] = []
        self._last: Tokens | None = None

    def push(self, event: Tokens) -> bool:
        """Take new tokens; returns whether they are the last ones. Without stop strings the text is
        made once, at the end.
        """
        self._token_ids += event.token_ids
        if event.logprobs:
            self._logprobs += event.logprobs
        if event.finish_reason is None and not self._watched:
            return False
        self._last = event
        self.done = event.finish_reason is not None
        if self._stream is None:
            return self.done
        if self._watched:
            self._push_text(self._stream, event.token_ids, event.stop_token_id)
        elif self.done:
            self._push_text(self._stream, self._token_ids, event.stop_token_id)
        if self._stream.stopped:
            self.done = True
        elif self.done:
            self._text.append(self._stream.finish())
        return self.done

    def _push_text(self, stream: TextStream, ids: Sequence[int], stop_id: int | None) -> None:
        self._text.append(stream.push(ids, stop_token_id=stop_id))

    def completion(self) -> CompletionOutput:
        """Return the finished output."""
        assert self._last is not None  # noqa: S101 - a finished output has had its last message
        last, stopped = self._last, self._stream is not None and self._stream.stopped
        kept = len(self._token_ids)
        if self._stream is not None and stopped:
            kept = self._stream.num_tokens
        return CompletionOutput(
            index=self._index,
            text="".join(self._text),
            token_ids=tuple(self._token_ids[:kept]),
            finish_reason="stop" if stopped else last.finish_reason or "abort",
            stop_reason=self._stop_reason(last),
            error=last.error,
            logprobs=self._readable_logprobs(kept),
        )

    def _readable_logprobs(self, kept: int) -> tuple[Logprobs, ...] | None:
        if self._sampling.logprobs is None:
            return None
        return tuple(readable(entry, self._tokenizer) for entry in self._logprobs[:kept])

    def _stop_reason(self, last: Tokens) -> str | int | None:
        if self._stream is not None and self._stream.stopped:
            return self._stream.stop_reason
        listed = self._sampling.stop_token_ids
        return last.stop_token_id if last.stop_token_id in listed else None


def readable(entry: TokenLogprobs, tokenizer: Tokenizer | None) -> Logprobs:
    """The most likely tokens of a position and the one that is there, by id."""
    pairs = enumerate(zip(entry.top_ids, entry.top_logprobs, strict=True), start=1)
    found = {token_id: (logprob, rank) for rank, (token_id, logprob) in pairs}
    found[entry.token_id] = (entry.logprob, entry.rank)
    return {
        token_id: Logprob(logprob, rank, _decoded(token_id, tokenizer))
        for token_id, (logprob, rank) in found.items()
    }


def _decoded(token_id: int, tokenizer: Tokenizer | None) -> str | None:
    if tokenizer is None:
        return None
    return tokenizer.decode([token_id], skip_special_tokens=False)
