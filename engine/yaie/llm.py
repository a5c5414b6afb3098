"""The offline API: `LLM(model).generate(prompts, SamplingParams(...))` runs the engine in this
process.

Requests use the same scheduler, engine loop, text stream and runner as in the server.
`yaie.offline` reads the inputs, drives the loop and makes the outputs.
"""

import gc
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, Self, Unpack

import numpy as np
import torch

from yaie.config import ModelInfo
from yaie.core.messages import Generate, Pooling
from yaie.core.request import SamplingParams
from yaie.offline import beam_runner, inputs, keywords
from yaie.offline.beam_search import (
    BeamSearchOutput,
    BeamSearchParams,
    BeamSearchSequence,
    Search,
)
from yaie.offline.driver import Driver
from yaie.offline.inputs import BarePrompt, Message, Prompt
from yaie.offline.keywords import EngineSettings
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
from yaie.offline.reader import Reader
from yaie.offline.requests import PooledRequest, TextRequest
from yaie.runtime.startup import factory
from yaie.text import vectors
from yaie.text.prompt.tokenizer import Tokenizer
from yaie_api.errors import InvalidRequestError

__all__ = [
    "LLM",
    "BeamSearchOutput",
    "BeamSearchParams",
    "BeamSearchSequence",
    "CompletionOutput",
    "RequestOutput",
]

_NOTHING = SamplingParams(max_tokens=0, temperature=0.0)


class LLM:
    """A loaded model that answers batches of prompts. Threads may share it; their calls take turns.

    As a context manager it closes itself: `with LLM(model) as llm:`.

    Args:
        model: `builtin://NAME`, `hf://org/name[@revision]` or a local folder.
        settings: fields of `EngineConfig`. vLLM's and Ollama's names are accepted where the value
            is one of ours or changes nothing, and explained otherwise.

    Raises:
        InvalidRequestError: the model does not exist or is refused, or a setting is invalid, or one
            of vLLM's has a value that cannot be had here.
        TypeError: a setting does not exist.

    """

    def __init__(self, model: str | os.PathLike[str], **settings: Unpack[EngineSettings]) -> None:
        # Offline, latency between tokens does not matter: do not limit the size of prefill chunks.
        defaults = {"step_time_target_s": math.inf, "max_num_queued_reqs": 2**31 - 1}
        engine = factory.create(inputs.config_of(model, defaults | keywords.read(settings)))
        self._driver = Driver(engine)
        self._reader = Reader(engine.info)
        self.info: ModelInfo = engine.info

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the engine's threads and processes and free its memory, on the device too. Calls that
        run end first, later ones raise RuntimeError; closing again does nothing.
        """
        self._driver.close()
        gc.collect()  # models refer to themselves: without it their tensors would stay for a while
        torch.cuda.empty_cache()

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        structured_outputs: Mapping[str, Any] | None = None,
        priority: int | Sequence[int] | None = None,
        use_tqdm: bool = True,
    ) -> list[RequestOutput]:
        """Complete all prompts, with continuous batching.

        Args:
            prompts: one prompt or several: a text, token ids, or a mapping with `prompt` or
                `prompt_token_ids`.
            sampling_params: one for all prompts or one for each; default SamplingParams().
            structured_outputs: the form of every output, as in the server's field of that name:
                one of json, regex, choice, grammar, json_object.
            priority: one for all prompts or one for each; used by the policy "priority".
            use_tqdm: whether to show progress if standard error is a terminal.

        Returns:
            One output per prompt, in the prompts' order; each has `n` texts.

        Raises:
            InvalidRequestError: the model does not generate text, or a prompt is empty, too long or
                malformed; nothing was generated.
            KeyboardInterrupt: Ctrl-C was pressed; the requests were ended, and the object can still
                be used.

        """
        self.info.require("generate")
        texts = inputs.as_list(prompts)
        params = inputs.one_each(sampling_params, len(texts))
        params = [self._reader.complete(one, structured_outputs) for one in params]
        order = inputs.priorities(priority, len(texts))
        requests = [self._request(*one) for one in zip(texts, params, order, strict=True)]
        return [done.output() for done in self._driver.run(requests, shown=use_tqdm)]

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool | None = None,
        continue_final_message: bool = False,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        structured_outputs: Mapping[str, Any] | None = None,
        priority: int | Sequence[int] | None = None,
        use_tqdm: bool = True,
    ) -> list[RequestOutput]:
        """Answer one conversation (a list of messages) or several, with the model's chat template.

        Args:
            messages: one conversation or several.
            sampling_params: as in `generate`.
            tools: functions that the prompt describes to the model; its output is not parsed.
            add_generation_prompt: whether the prompt ends with the beginning of the model's turn;
                None: yes, unless the last message is continued.
            continue_final_message: whether the answer continues the last message.
            chat_template_kwargs: further variables of the template.
            structured_outputs: as in `generate`.
            priority: as in `generate`.
            use_tqdm: as in `generate`.

        Raises:
            InvalidRequestError: messages or tools are invalid (as in the server), or the model has
                no chat template, or the template refuses the messages.

        """
        self.info.require("generate")
        conversations = inputs.conversations(
            messages,
            tools=tools,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            chat_template_kwargs=chat_template_kwargs,
        )
        prompts = [self._reader.chat_ids(one) for one in conversations]
        return self.generate(
            prompts,
            sampling_params,
            structured_outputs=structured_outputs,
            priority=priority,
            use_tqdm=use_tqdm,
        )

    def beam_search(
        self, prompts: Prompt | Sequence[Prompt], params: BeamSearchParams
    ) -> list[BeamSearchOutput]:
        """Find the most likely continuations of every prompt.

        A beam goes on from its pages in the prefix cache, so that a step computes few tokens of it;
        with `enable_prefix_caching=False` each step computes the whole of it again.

        Args:
            prompts: as in `generate`.
            params: how to search.

        Returns:
            One output per prompt, in the prompts' order, each with `beam_width` sequences.

        Raises:
            InvalidRequestError: the model does not generate text, a prompt is malformed or, with
                the wanted tokens, too long, or the width needs more log-probabilities than
                `max_logprobs` allows.

        """
        self.info.require("generate")
        if not isinstance(params, BeamSearchParams):
            raise InvalidRequestError("params must be BeamSearchParams.", param="params")
        searches = [Search(ids, params, self.info) for ids in self._all_ids(prompts)]
        beam_runner.run(searches, self._driver)
        return [BeamSearchOutput(search.sequences(self._reader.found)) for search in searches]

    def embed(
        self,
        prompts: Prompt | Sequence[Prompt],
        *,
        dimensions: int | None = None,
        use_tqdm: bool = True,
    ) -> list[EmbeddingRequestOutput]:
        """Return an embedding of unit length for every prompt.

        `dimensions`: length to which embeddings are cut, for models trained for it (Matryoshka).

        Raises:
            InvalidRequestError: the model does not embed, or a prompt is malformed or too long.

        """
        self.info.require("embed")
        inputs.check_dimensions(dimensions, self.info.hidden_size)
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
            InvalidRequestError: the model does not classify, or a prompt is malformed or too long.

        """
        self.info.require("classify")
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
        """Return the similarity of pairs of texts: a cross-encoder's probability, or the cosine of
        the two embeddings. A single `text_1` is paired with every `text_2`.

        Raises:
            InvalidRequestError: the model neither embeds nor scores.

        """
        pairs = inputs.pairs(text_1, text_2)
        if "classify" in self.info.tasks:
            return self._cross_encode(pairs, shown=use_tqdm)
        texts = list(dict.fromkeys(text for pair in pairs for text in pair))
        found = dict(zip(texts, self.embed(texts, use_tqdm=use_tqdm), strict=True))
        return [_cosine(found[left], found[right]) for left, right in pairs]

    def reset_prefix_cache(self) -> None:
        """Drop all cached prefixes."""
        self._driver.reset_prefix_cache()

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer.

        Raises:
            InvalidRequestError: the model's folder has none.

        """
        return self._reader.tokenizer

    def _request(self, prompt: BarePrompt, sampling: SamplingParams, priority: int) -> TextRequest:
        text = prompt if isinstance(prompt, str) else None
        ids = self._reader.prompt_ids(prompt)
        message = Generate(self._driver.new_id(), ids, sampling, priority)
        return TextRequest(message, text, self._reader.found)

    def _all_ids(self, prompts: Prompt | Sequence[Prompt]) -> list[tuple[int, ...]]:
        return [self._reader.prompt_ids(prompt) for prompt in inputs.as_list(prompts)]

    def _pool(
        self, prompts: Sequence[tuple[int, ...]], pooling: Pooling, *, shown: bool
    ) -> list[PooledRequest]:
        requests = [
            PooledRequest(Generate(self._driver.new_id(), ids, _NOTHING, pooling=pooling))
            for ids in prompts
        ]
        return self._driver.run(requests, shown=shown)

    def _cross_encode(
        self, pairs: Sequence[tuple[str, str]], *, shown: bool
    ) -> list[ScoringRequestOutput]:
        if self.info.num_labels != 1:
            raise InvalidRequestError(
                f"A score needs one label, and the model has {self.info.num_labels}: classify.",
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


def _vector(done: PooledRequest) -> vectors.Vector:
    return vectors.from_bytes(done.pooled)


def _cosine(left: EmbeddingRequestOutput, right: EmbeddingRequestOutput) -> ScoringRequestOutput:
    sides = (np.array(side.outputs.embedding, dtype=np.float32) for side in (left, right))
    return ScoringRequestOutput(
        right.request_id,
        left.prompt_token_ids + right.prompt_token_ids,
        ScoringOutput(vectors.cosine(*sides)),
    )
