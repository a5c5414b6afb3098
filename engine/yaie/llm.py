"""The offline API: `LLM(model).generate(prompts, SamplingParams(...))`, the engine in this process.

Requests go through the same scheduler, loop, text object and runner as behind the server; only the
port between them is a pair of lists.
"""

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from operator import index
from pathlib import Path
from typing import Any

import msgspec

from yaie.config import EngineConfig, ModelInfo
from yaie.core.messages import Abort, Command, Event, FinishReason, Generate, Rejected, Tokens
from yaie.core.request import SamplingParams
from yaie.interrupts import Interrupts
from yaie.progress import Progress
from yaie.runtime import factory
from yaie.server.tokenizer import Tokenizer
from yaie.text import TextStream
from yaie_api.errors import EngineError, InvalidRequestError, YaieError
from yaie_api.openai import TokenizeRequest, parse

Prompt = str | Sequence[int]
Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CompletionOutput:
    """One generated text. `finish_reason`: stop, length, abort or error.

    `stop_reason` is the stop string or the stop token id that ended it; None at EOS or length.
    """

    index: int
    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    stop_reason: str | int | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class RequestOutput:
    """What became of one prompt. `num_cached_tokens`: prompt tokens found in the prefix cache."""

    request_id: str
    prompt: str | None
    prompt_token_ids: tuple[int, ...]
    outputs: tuple[CompletionOutput, ...]
    num_cached_tokens: int


class LLM:
    """A loaded model that answers batches of prompts.

    Args:
        model: `builtin://NAME`, `hf://org/name[@revision]` or a local folder.
        settings: fields of `EngineConfig`.

    Raises:
        InvalidRequestError: no such model, one that is refused, or settings that do not fit it.
        TypeError: no such setting.

    """

    def __init__(self, model: str | os.PathLike[str], **settings: Any) -> None:
        # Nobody watches tokens arrive here: chunks are not held small for the sake of latency.
        defaults = {"step_time_target_s": math.inf, "max_num_queued_reqs": 2**31 - 1}
        engine = factory.create(_config(model, defaults | settings))
        self._port = _ListPort()
        self._loop = engine.loop(self._port)
        self._ids = count()
        self._tokenizer = _tokenizer(Path(engine.info.path))
        self.info: ModelInfo = engine.info

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
    ) -> list[RequestOutput]:
        """Complete every prompt (a text or token ids), in one continuous batch.

        Args:
            prompts: one prompt or several.
            sampling_params: one for all prompts or one for each; default SamplingParams().
            use_tqdm: show progress when standard error is a terminal.

        Returns:
            One output per prompt, in the prompts' order.

        Raises:
            InvalidRequestError: a prompt is empty, too long or malformed; nothing was generated.
            KeyboardInterrupt: Ctrl-C; the requests are ended, and the object stays usable.

        """
        texts = _as_list(prompts)
        params = _one_each(sampling_params, len(texts))
        requests = [self._request(text, one) for text, one in zip(texts, params, strict=True)]
        return self._run(requests, use_tqdm=use_tqdm)

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
    ) -> list[RequestOutput]:
        """Answer one conversation (a list of messages) or several, with the model's chat template.

        Raises:
            InvalidRequestError: messages that the server would not take either, a model without
                chat template, or a template that refuses.

        """
        several = messages if messages and not isinstance(messages[0], Mapping) else [messages]
        tokenizer = self.tokenizer
        prompts = [tokenizer.encode_chat(_conversation(one)) for one in several]
        return self.generate(prompts, sampling_params, use_tqdm=use_tqdm)

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer.

        Raises:
            InvalidRequestError: the model's folder has none.

        """
        if self._tokenizer is None:
            raise InvalidRequestError(
                "The model has no tokenizer.json: give token ids instead of text.", param="prompt"
            )
        return self._tokenizer

    def _request(self, prompt: Prompt, sampling: SamplingParams) -> "_Request":
        text = prompt if isinstance(prompt, str) else None
        ids = tuple(self.tokenizer.encode(prompt)) if isinstance(prompt, str) else _ids(prompt)
        return _Request(f"llm-{next(self._ids)}", text, ids, sampling, self._tokenizer)

    def _run(self, requests: "list[_Request]", *, use_tqdm: bool) -> list[RequestOutput]:
        live = {request.request_id: request for request in requests}
        self._port.inbox.extend(request.message for request in requests)
        with Interrupts() as interrupts, Progress(len(requests), shown=use_tqdm) as progress:
            try:
                while live:
                    self._loop.step()
                    interrupts.check()
                    for event in self._port.take():
                        self._handle(event, live, progress)
            finally:
                self._abandon(live)
        return [request.output() for request in requests]

    def _handle(self, event: Event, live: "dict[str, _Request]", progress: Progress) -> None:
        if isinstance(event, Rejected):
            live.pop(event.request_id)
            raise _error(event)
        if not isinstance(event, Tokens) or event.request_id not in live:
            return
        request = live[event.request_id]
        request.push(event)
        progress.add_tokens(len(event.token_ids))
        if request.done:
            del live[event.request_id]
            progress.add_request()
            if event.finish_reason is None:
                self._port.inbox.append(Abort(event.request_id))

    def _abandon(self, live: "dict[str, _Request]") -> None:
        """End what an error or Ctrl-C left running, and see the loop come to rest. (It need not
        fall idle: what a second Ctrl-C has torn apart never ends.)
        """
        self._port.inbox.extend(Abort(request_id) for request_id in live)
        while self._loop.step():
            continue
        self._port.take()


class _Request:
    """One prompt on its way: collects tokens, makes text, knows when it is done."""

    def __init__(
        self,
        request_id: str,
        prompt: str | None,
        ids: tuple[int, ...],
        sampling: SamplingParams,
        tokenizer: Tokenizer | None,
    ) -> None:
        if sampling.stop and tokenizer is None:
            raise InvalidRequestError("stop strings need a tokenizer.", param="stop")
        self.request_id = request_id
        self.prompt = prompt
        self.message = Generate(request_id, ids, sampling)
        self.done = False
        self._stream = None if tokenizer is None else TextStream(tokenizer, sampling)
        self._watched = bool(sampling.stop)
        self._token_ids: list[int] = []
        self._text: list[str] = []
        self._last: Tokens | None = None

    def push(self, event: Tokens) -> None:
        """Take new tokens. Without stop strings the text is made once, at the end."""
        self._token_ids.extend(event.token_ids)
        self._last = event
        self.done = event.finish_reason is not None
        if self._stream is None:
            return
        if self._watched:
            self._push_text(event.token_ids, event.stop_token_id)
        elif self.done:
            self._push_text(self._token_ids, event.stop_token_id)
        if self._stream.stopped:
            self.done = True
        elif self.done:
            self._text.append(self._stream.finish())

    def _push_text(self, token_ids: Sequence[int], stop_token_id: int | None) -> None:
        assert self._stream is not None  # noqa: S101 - the only caller has checked it
        self._text.append(self._stream.push(token_ids, stop_token_id=stop_token_id))

    def output(self) -> RequestOutput:
        """Return the finished request's output."""
        assert self._last is not None  # noqa: S101 - a finished request has had its last message
        return RequestOutput(
            request_id=self.request_id,
            prompt=self.prompt,
            prompt_token_ids=self.message.prompt_token_ids,
            outputs=(self._completion(self._last),),
            num_cached_tokens=self._last.cached_tokens,
        )

    def _completion(self, last: Tokens) -> CompletionOutput:
        stopped = self._stream is not None and self._stream.stopped
        kept = len(self._token_ids)
        if self._stream is not None and stopped:
            kept = self._stream.num_tokens
        return CompletionOutput(
            index=0,
            text="".join(self._text),
            token_ids=tuple(self._token_ids[:kept]),
            finish_reason="stop" if stopped else last.finish_reason or "abort",
            stop_reason=self._stop_reason(last),
            error=last.error,
        )

    def _stop_reason(self, last: Tokens) -> str | int | None:
        if self._stream is not None and self._stream.stopped:
            return self._stream.stop_reason
        listed = self.message.sampling.stop_token_ids
        return last.stop_token_id if last.stop_token_id in listed else None


class _ListPort:
    """The loop's port as two lists: what `LLM` sends and what comes back."""

    def __init__(self) -> None:
        self.inbox: list[Command] = []
        self._outbox: list[Event] = []

    def drain(self, *, wait_s: float) -> list[Command]:  # noqa: ARG002 - nothing comes from outside
        commands, self.inbox = self.inbox, []
        return commands

    def publish(self, events: list[Event]) -> None:
        self._outbox.extend(events)

    def take(self) -> list[Event]:
        events, self._outbox = self._outbox, []
        return events


def _tokenizer(folder: Path) -> Tokenizer | None:
    return Tokenizer.load(folder) if (folder / "tokenizer.json").is_file() else None


def _config(model: str | os.PathLike[str], settings: Mapping[str, Any]) -> EngineConfig:
    """The settings, their types checked as a command line's would be."""
    try:
        config = EngineConfig(model=os.fspath(model), **settings)
        return msgspec.convert(msgspec.structs.asdict(config), EngineConfig)
    except msgspec.ValidationError as error:
        raise InvalidRequestError(f"A setting has the wrong type: {error}.") from error


def _as_list(prompts: Any) -> list[Prompt]:
    """One prompt is a string or a list of ids; anything else is a list of prompts."""
    if isinstance(prompts, str):
        return [prompts]
    if not isinstance(prompts, Iterable) or isinstance(prompts, Mapping | bytes):
        raise _malformed(prompts)
    found = list(prompts)
    if found and hasattr(found[0], "__index__"):
        return [found]
    return found


def _ids(prompt: Any) -> tuple[int, ...]:
    """Token ids as integers; anything else is refused by name."""
    if isinstance(prompt, Mapping | bytes):
        raise _malformed(prompt)
    try:
        return tuple(map(index, prompt))
    except TypeError:
        raise _malformed(prompt) from None


def _conversation(messages: Any) -> list[dict[str, Any]]:
    """Messages as templates read them, checked as the server checks them."""
    given = list(messages) if isinstance(messages, Sequence) else messages
    return parse(TokenizeRequest, {"messages": given}).conversation()


def _malformed(prompt: object) -> InvalidRequestError:
    return InvalidRequestError(
        f"A prompt must be a text or a list of token ids, not {type(prompt).__name__}.",
        param="prompt",
    )


def _one_each(
    params: SamplingParams | Sequence[SamplingParams] | None, n_prompts: int
) -> list[SamplingParams]:
    if params is None or isinstance(params, SamplingParams):
        return [params or SamplingParams()] * n_prompts
    if isinstance(params, Mapping | str):
        raise _not_params(params)
    if len(params) != n_prompts:
        raise InvalidRequestError(
            f"There are {n_prompts} prompts and {len(params)} sampling_params.",
            param="sampling_params",
        )
    for one in params:
        if not isinstance(one, SamplingParams):
            raise _not_params(one)
    return list(params)


def _not_params(given: object) -> InvalidRequestError:
    return InvalidRequestError(
        f"sampling_params must be SamplingParams, not {type(given).__name__}.",
        param="sampling_params",
    )


def _error(event: Rejected) -> YaieError:
    kind = InvalidRequestError if event.status == InvalidRequestError.status else EngineError
    return kind(event.message, param=event.param, code=event.code)
