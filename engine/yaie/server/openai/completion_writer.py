"""Writes the answers to the prompts of a text completion, whole or as one stream of chunks.

Choices are numbered over all prompts: those of the first, then those of the second.
"""

import asyncio
from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import Any

import msgspec
from starlette.responses import Response

from yaie.core.messages import TokenLogprobs
from yaie.server.answers.answer import Answer, Choice
from yaie.server.answers.chunks import (
    NO_TEXT_IDS,
    NULL,
    TextChunks,
    encode_json,
    field,
    usage_field,
)
from yaie.server.answers.output import Delta
from yaie.server.answers.relay import relay
from yaie.server.answers.response_body import ResponseBody
from yaie.server.openai.logprobs import CompletionLogprobs, TokenForms, prompt_logprobs, together
from yaie.server.request.http import json_response
from yaie.text.parts import TextPart
from yaie.text.prompt.tokenizer import Tokenizer
from yaie_api.http.openai import CompletionRequest, Usage


class CompletionWriter:
    """Writes one request's answers; it is their sink. `head`: id, time of creation and model."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        body: CompletionRequest,
        answers: Sequence[Answer],
        head: tuple[str, int, str],
    ) -> None:
        self._tokenizer = tokenizer
        self._body = body
        self._answers = answers
        self._head = head
        self._prompts = body.prompts()
        self._forms = TokenForms(tokenizer, as_ids=body.return_tokens_as_token_ids)
        self._logprobs = [CompletionLogprobs(self._forms) for _ in range(len(answers) * body.n)]
        """One for each choice: its offsets continue from chunk to chunk."""
        self._encoders = [TextChunks(*head, index=i) for i in range(len(self._logprobs))]
        self._begun = [False] * len(self._encoders)
        self._counts = body.continuous_usage
        self._no_usage = usage_field(None) if body.include_usage else b""

    async def stream(self, out: ResponseBody) -> None:
        """Write the chunks of all choices as they come, then the usage if it is asked for."""
        self._out = out
        await relay(self._answers, self, out)
        if self._body.include_usage:
            out.write(self._encoders[0].usage(self._usage()))

    def text(self, index: int, text: str) -> None:
        """Write a chunk of choice `index` that is only text."""
        if not self._begun[index]:
            self.delta(index, Delta((TextPart(text),)))
            return
        self._out.write(self._encoders[index].text(text, self._usage_now()))

    def delta(self, index: int, delta: Delta) -> None:
        """Write any other chunk of it."""
        begun, self._begun[index] = self._begun[index], True
        delta = delta if begun else self._begin(index, delta)
        logprobs = self._chunk_logprobs(index, delta, first=not begun)
        ids = self._ids(index, delta, begun) if self._body.return_token_ids else NO_TEXT_IDS
        encoder = self._encoders[index]
        self._out.write(encoder.delta(delta, logprobs=logprobs, ids=ids, top=self._usage_now()))

    def whole(self, wholes: Sequence[Sequence[Choice]]) -> Response:
        """Return all choices in one JSON object. `wholes`: the choices of each prompt."""
        answer_id, created, model = self._head
        choices = [choice for whole in wholes for choice in whole]
        return json_response(
            {
                "id": answer_id,
                "object": "text_completion",
                "created": created,
                "model": model,
                "choices": [self._choice(index, one) for index, one in enumerate(choices)],
                "service_tier": None,
                "system_fingerprint": None,
                "usage": self._usage().wire(),
                "kv_transfer_params": None,
            }
        )

    def _choice(self, index: int, choice: Choice) -> dict[str, Any]:
        body, answer = self._body, self._answers[index // self._body.n]
        of_prompt = None
        if body.prompt_logprobs is not None:
            of_prompt = prompt_logprobs(self._forms, answer.prompt_logprobs or ())
        return {
            "index": index,
            "text": (self._echo(index) if body.echo else "") + choice.text,
            "logprobs": self._all_logprobs(index, choice.logprobs, first=True),
            "finish_reason": choice.finish_reason,
            "stop_reason": choice.stop_reason,
            "token_ids": choice.token_ids if body.return_token_ids else None,
            "prompt_logprobs": of_prompt,
            "prompt_token_ids": answer.prompt_token_ids if body.return_token_ids else None,
            "routed_experts": None,
        }

    def _echo(self, index: int) -> str:
        """Return the prompt's text: as it was sent, or decoded from its ids."""
        prompt = self._prompts[index // self._body.n]
        if isinstance(prompt, str) and self._body.truncate_prompt_tokens is None:
            return prompt
        ids = self._answers[index // self._body.n].prompt_token_ids
        return self._tokenizer.decode(ids, skip_special_tokens=False)

    def _begin(self, index: int, delta: Delta) -> Delta:
        """Put the prompt before the first delta of a choice, if it is echoed."""
        if not self._body.echo:
            return delta
        return msgspec.structs.replace(delta, parts=[TextPart(self._echo(index)), *delta.parts])

    def _chunk_logprobs(self, index: int, delta: Delta, *, first: bool) -> bytes:
        if self._body.num_logprobs is None:
            return NULL
        return encode_json(self._all_logprobs(index, delta.logprobs, first=first))

    def _all_logprobs(
        self, index: int, entries: Sequence[TokenLogprobs], *, first: bool
    ) -> dict[str, Any] | None:
        """Return the logprobs of some tokens. `first`: with those of an echoed prompt before."""
        if self._body.num_logprobs is None:
            return None
        writer = self._logprobs[index]
        if not (first and self._body.echo):
            return writer.output(entries)
        answer = self._answers[index // self._body.n]
        prompt = writer.prompt(answer.prompt_token_ids, answer.prompt_logprobs or ())
        return together(prompt, writer.output(entries))

    def _ids(self, index: int, delta: Delta, begun: bool) -> bytes:  # noqa: FBT001 - a state
        answer = self._answers[index // self._body.n]
        prompt = None if begun else answer.prompt_token_ids
        return field("prompt_token_ids", prompt) + field("token_ids", delta.token_ids)

    def _usage_now(self) -> bytes:
        """Return the usage field of a chunk."""
        return usage_field(self._usage()) if self._counts else self._no_usage

    def _usage(self) -> Usage:
        return reduce(add, (answer.usage for answer in self._answers))


async def all_whole(answers: Sequence[Answer]) -> list[list[Choice]]:
    """Wait for the choices of each answer. The first error is raised and ends all of them."""
    try:
        return list(await asyncio.gather(*(answer.whole() for answer in answers)))
    finally:
        for answer in answers:
            answer.close()
