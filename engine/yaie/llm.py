"""The offline API: `LLM(model).generate(prompts, SamplingParams(...))`, the engine in this process.

Requests go through the same scheduler, loop, text object and runner as behind the server; only the
port between them is a pair of lists.
"""

import math
import os
import time
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

import msgspec
import numpy as np

from yaie import vectors
from yaie.config import ModelInfo
from yaie.core.messages import (
    Abort,
    Command,
    Event,
    Generate,
    Pooling,
    Rejected,
    ResetPrefixCache,
    Tokens,
)
from yaie.core.request import SamplingParams
from yaie.interrupts import Interrupts
from yaie.offline import inputs
from yaie.offline.inputs import Message, Prompt
from yaie.offline.outputs import (
    ClassificationOutput,
    ClassificationRequestOutput,
    CompletionOutput,
    EmbeddingOutput,
    EmbeddingRequestOutput,
    RequestOutput,
    ScoringOutput,
    ScoringRequestOutput,
)
from yaie.offline.requests import PooledRequest, Request, TextRequest
from yaie.progress import Progress
from yaie.runtime import factory
from yaie.runtime.loop import COMPILING_WAIT_S
from yaie.server.params import bad_words_ids
from yaie.server.prompt.tokenizer import Tokenizer
from yaie.server.structured.forms import grammar_of
from yaie_api.errors import EngineError, InvalidRequestError, YaieError
from yaie_api.openai import TokenizeRequest, parse

__all__ = ["LLM", "CompletionOutput", "RequestOutput"]

_NOTHING = SamplingParams(max_tokens=0, temperature=0.0)
RequestT = TypeVar("RequestT", bound=Request)


class LLM:
    """A loaded model that answers batches of prompts. Threads may share it: they take turns.

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
        engine = factory.create(inputs.config_of(model, defaults | settings))
        self._port = _ListPort()
        self._loop = engine.loop(self._port)
        self._ids = count()
        self._turn = Lock()  # whoever steps the loop takes all events
        self._tokenizer = _tokenizer(Path(engine.info.tokenizer_path or engine.info.path))
        self.info: ModelInfo = engine.info

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        structured_outputs: Mapping[str, Any] | None = None,
        priority: int | Sequence[int] | None = None,
        use_tqdm: bool = True,
    ) -> list[RequestOutput]:
        """Complete every prompt (a text or token ids), in one continuous batch.

        Args:
            prompts: one prompt or several.
            sampling_params: one for all prompts or one for each; default SamplingParams().
            structured_outputs: the form of every output, as in the server's field of that name:
                one of json, regex, choice, grammar, json_object.
            priority: one for all prompts or one for each; used by the policy "priority".
            use_tqdm: show progress when standard error is a terminal.

        Returns:
            One output per prompt, in the prompts' order; each holds `n` texts.

        Raises:
            InvalidRequestError: a prompt is empty, too long or malformed; nothing was generated.
            KeyboardInterrupt: Ctrl-C; the requests are ended, and the object stays usable.

        """
        texts = inputs.as_list(prompts)
        params = inputs.one_each(sampling_params, len(texts))
        params = [self._complete(one, structured_outputs) for one in params]
        order = inputs.priorities(priority, len(texts))
        requests = [self._request(*one) for one in zip(texts, params, order, strict=True)]
        return [done.output() for done in self._run(requests, shown=use_tqdm)]

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        structured_outputs: Mapping[str, Any] | None = None,
        priority: int | Sequence[int] | None = None,
        use_tqdm: bool = True,
    ) -> list[RequestOutput]:
        """Answer one conversation (a list of messages) or several, with the model's chat template.

        Args:
            messages: one conversation or several.
            sampling_params: as in `generate`.
            tools: functions that the template tells the model about; its text is not parsed.
            add_generation_prompt: begin the model's turn.
            chat_template_kwargs: further variables of the template.
            structured_outputs: as in `generate`.
            priority: as in `generate`.
            use_tqdm: as in `generate`.

        Raises:
            InvalidRequestError: messages that the server would not take either, a model without
                chat template, or a template that refuses.

        """
        several = messages if messages and not isinstance(messages[0], Mapping) else [messages]
        variables = dict(chat_template_kwargs or {}) | ({"tools": list(tools)} if tools else {})
        tokenizer = self.tokenizer
        prompts = [
            tokenizer.encode_chat(
                _conversation(one),
                add_generation_prompt=add_generation_prompt,
                variables=variables,
            )
            for one in several
        ]
        return self.generate(
            prompts,
            sampling_params,
            structured_outputs=structured_outputs,
            priority=priority,
            use_tqdm=use_tqdm,
        )

    def embed(
        self,
        prompts: Prompt | Sequence[Prompt],
        *,
        dimensions: int | None = None,
        use_tqdm: bool = True,
    ) -> list[EmbeddingRequestOutput]:
        """Return an embedding of unit length for every prompt.

        `dimensions`: keep so many numbers of each (for models trained so: Matryoshka).

        Raises:
            InvalidRequestError: the model cannot embed, or a prompt is malformed or too long.

        """
        self._require("embed")
        if dimensions is not None and not 1 <= dimensions <= (self.info.hidden_size or dimensions):
            raise InvalidRequestError(
                f"dimensions must be 1 to {self.info.hidden_size}.", param="dimensions"
            )
        pooling: Pooling = "mean" if self.info.pooling == "mean" else "last"
        return [
            EmbeddingRequestOutput(
                done.message.request_id,
                done.message.prompt_token_ids,
                EmbeddingOutput(vectors.embedding(_vector(done), dimensions).tolist()),
            )
            for done in self._pool(self._all_ids(prompts), pooling, shown=use_tqdm)
        ]

    def classify(
        self, prompts: Prompt | Sequence[Prompt], *, use_tqdm: bool = True
    ) -> list[ClassificationRequestOutput]:
        """Return the probabilities of a sequence classifier's labels for every prompt.

        Raises:
            InvalidRequestError: the model is no classifier, or a prompt is malformed or too long.

        """
        self._require("classify")
        return [
            ClassificationRequestOutput(
                done.message.request_id,
                done.message.prompt_token_ids,
                ClassificationOutput(vectors.softmax(_vector(done)).tolist()),
            )
            for done in self._pool(self._all_ids(prompts), "classify", shown=use_tqdm)
        ]

    def score(
        self, text_1: str | Sequence[str], text_2: str | Sequence[str], *, use_tqdm: bool = True
    ) -> list[ScoringRequestOutput]:
        """Return how well pairs of texts go together: a cross-encoder's probability, or the cosine
        of the two embeddings. One text on the left goes with every one on the right.

        Raises:
            InvalidRequestError: the model can neither embed nor score.

        """
        pairs = inputs.pairs(text_1, text_2)
        if "classify" in self.info.tasks:
            return self._cross_encode(pairs, shown=use_tqdm)
        texts = list(dict.fromkeys(text for pair in pairs for text in pair))
        found = dict(zip(texts, self.embed(texts, use_tqdm=use_tqdm), strict=True))
        return [_cosine(found[left], found[right]) for left, right in pairs]

    def reset_prefix_cache(self) -> None:
        """Forget every cached prefix."""
        with self._turn:
            self._port.inbox.append(ResetPrefixCache(f"reset-{next(self._ids)}"))
            while self._loop.step():
                continue
            self._port.take()

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

    def _require(self, task: str) -> None:
        if task not in self.info.tasks:
            raise InvalidRequestError(f"This model cannot {task}.", code="task_not_supported")

    def _complete(
        self, sampling: SamplingParams, structured_outputs: Mapping[str, Any] | None
    ) -> SamplingParams:
        """Fill in what needs the tokenizer, and the form of the output."""
        changes: dict[str, Any] = {}
        if sampling.bad_words and not sampling.bad_words_ids:
            changes["bad_words_ids"] = bad_words_ids(sampling.bad_words, self.tokenizer)
        if structured_outputs is not None:
            changes["grammar"] = grammar_of({"structured_outputs": structured_outputs})
        return msgspec.structs.replace(sampling, **changes) if changes else sampling

    def _request(self, prompt: Prompt, sampling: SamplingParams, priority: int) -> TextRequest:
        text = prompt if isinstance(prompt, str) else None
        message = Generate(self._new_id(), self._encode(prompt), sampling, priority)
        return TextRequest(message, text, self._tokenizer)

    def _encode(self, prompt: Prompt) -> tuple[int, ...]:
        if isinstance(prompt, str):
            return tuple(self.tokenizer.encode(prompt))
        return inputs.token_ids(prompt)

    def _all_ids(self, prompts: Prompt | Sequence[Prompt]) -> list[tuple[int, ...]]:
        return [self._encode(prompt) for prompt in inputs.as_list(prompts)]

    def _new_id(self) -> str:
        return f"llm-{next(self._ids)}"

    def _pool(
        self, prompts: Sequence[tuple[int, ...]], pooling: Pooling, *, shown: bool
    ) -> list[PooledRequest]:
        requests = [
            PooledRequest(Generate(self._new_id(), ids, _NOTHING, pooling=pooling))
            for ids in prompts
        ]
        return self._run(requests, shown=shown)

    def _cross_encode(
        self, pairs: Sequence[tuple[str, str]], *, shown: bool
    ) -> list[ScoringRequestOutput]:
        if self.info.num_labels != 1:
            raise InvalidRequestError(
                f"The model has {self.info.num_labels} labels, and a score needs one.",
                code="task_not_supported",
            )
        prompts = [tuple(self.tokenizer.encode_pair(*pair)) for pair in pairs]
        return [
            ScoringRequestOutput(
                done.message.request_id,
                done.message.prompt_token_ids,
                ScoringOutput(vectors.sigmoid(float(_vector(done)[0]))),
            )
            for done in self._pool(prompts, "classify", shown=shown)
        ]

    def _run(self, requests: list[RequestT], *, shown: bool) -> list[RequestT]:
        """Step the loop until every request is done. Other threads wait for their turn."""
        live: dict[str, Request] = {request.message.request_id: request for request in requests}
        with (
            self._turn,
            Interrupts() as interrupts,
            Progress(len(requests), shown=shown) as progress,
        ):
            self._port.inbox.extend(request.message for request in requests)
            try:
                while live:
                    self._loop.step()
                    interrupts.check()
                    for event in self._port.take():
                        self._handle(event, live, progress)
            finally:
                self._abandon(live)
        return requests

    def _handle(self, event: Event, live: dict[str, Request], progress: Progress) -> None:
        if isinstance(event, Rejected):
            live.pop(event.request_id)
            raise _error(event)
        if not isinstance(event, Tokens) or event.request_id not in live:
            return
        request = live[event.request_id]
        if (abort := request.push(event)) is not None:
            self._port.inbox.append(abort)
        progress.add_tokens(len(event.token_ids))
        if request.done:
            del live[event.request_id]
            progress.add_request()

    def _abandon(self, live: dict[str, Request]) -> None:
        """End what an error or Ctrl-C left running, and see the loop come to rest. (It need not
        fall idle: what a second Ctrl-C has torn apart never ends.)
        """
        self._port.inbox.extend(Abort(request_id) for request_id in live)
        while self._loop.step():
            continue
        self._port.take()


class _ListPort:
    """The loop's port as two lists: what `LLM` sends and what comes back."""

    def __init__(self) -> None:
        self.inbox: list[Command] = []
        self._outbox: list[Event] = []

    def drain(self, *, wait_s: float) -> list[Command]:
        if 0 < wait_s <= COMPILING_WAIT_S:  # for a thread of ours; nothing comes from outside
            time.sleep(wait_s)
        commands, self.inbox = self.inbox, []
        return commands

    def publish(self, events: list[Event]) -> None:
        self._outbox.extend(events)

    def take(self) -> list[Event]:
        events, self._outbox = self._outbox, []
        return events


def _tokenizer(folder: Path) -> Tokenizer | None:
    return Tokenizer.load(folder) if (folder / "tokenizer.json").is_file() else None


def _conversation(messages: Any) -> list[dict[str, Any]]:
    """Messages as templates read them, checked as the server checks them."""
    given = list(messages) if isinstance(messages, Sequence) else messages
    return parse(TokenizeRequest, {"messages": given}).conversation()


def _vector(done: PooledRequest) -> vectors.Vector:
    return vectors.from_bytes(done.pooled)


def _cosine(left: EmbeddingRequestOutput, right: EmbeddingRequestOutput) -> ScoringRequestOutput:
    sides = (np.array(side.outputs.embedding, dtype=np.float32) for side in (left, right))
    return ScoringRequestOutput(
        right.request_id,
        left.prompt_token_ids + right.prompt_token_ids,
        ScoringOutput(vectors.cosine(*sides)),
    )


def _error(event: Rejected) -> YaieError:
    kind = InvalidRequestError if event.status == InvalidRequestError.status else EngineError
    return kind(event.message, param=event.param, code=event.code)
