"""POST /v1/chat/completions."""

import time
import uuid
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from yaie.server.answers.answer import Answer, Choice
from yaie.server.answers.chunks import NULL, ChatChunks, encode_json, field, usage_field
from yaie.server.answers.output import Delta
from yaie.server.answers.relay import relay
from yaie.server.answers.response_body import ResponseBody
from yaie.server.answers.stream import EventStream, until_disconnect
from yaie.server.caller import Caller
from yaie.server.openai.logprobs import TokenForms, chat_logprobs, prompt_logprobs
from yaie.server.params import output_room, sampling_params
from yaie.server.request.http import json_response, left_response
from yaie.server.request.open_request import open_request
from yaie.server.request.output_form import form_of
from yaie.server.request.prompts import chat_ids
from yaie.server.service import Service
from yaie.text.parts import ReasoningPart, TextPart, ToolCall
from yaie_api.http.openai import ChatCompletionRequest


async def chat_completions(request: Request) -> Any:
    service, caller, body, model = await open_request(request, ChatCompletionRequest)
    answer = await start_chat(service, body, caller)
    head = (f"chatcmpl-{uuid.uuid4().hex}", int(time.time()), model)
    writer = ChatWriter(service, body)
    if body.stream:
        encoders = [ChatChunks(*head, index=index) for index in range(answer.num_outputs)]
        write = partial(writer.stream, answer, encoders)
        return EventStream(write, ping_s=service.options.sse_keep_alive_s)
    choices = await until_disconnect(request.receive, answer.whole())
    return left_response() if choices is None else writer.whole(answer, choices, head)


async def start_chat(service: Service, body: ChatCompletionRequest, caller: Caller) -> Answer:
    """Render, tokenize, check and submit.

    Raises:
        YaieError: why the request is not served.

    """
    prompt = await chat_ids(service, body)
    form = await service.tokenize(body.form_size, lambda: form_of(service, body, prompt))
    max_tokens = output_room(
        service.info, len(prompt), body.output_limit, default=None, param="messages"
    )
    sampling = sampling_params(
        body,
        service.info,
        service.tokenizer,
        max_tokens=max_tokens,
        defaults=service.defaults,
        grammar=form.grammar,
        prompt_logprobs=body.prompt_logprobs,
    )
    return await service.start(prompt, sampling, body, caller, parser=form.parser)


class ChatWriter:
    """Writes one request's answer down, whole or as chunks."""

    def __init__(self, service: Service, body: ChatCompletionRequest) -> None:
        self.body = body
        self._forms = TokenForms(service.tokenizer, as_ids=body.return_tokens_as_token_ids)
        last = body.messages[-1]
        self._echo = last.text if body.echo and last.role == "assistant" else ""

    async def stream(
        self, answer: Answer, encoders: Sequence[ChatChunks], out: ResponseBody
    ) -> None:
        """Roles, then what comes of each choice, and usage where asked for."""
        usage = usage_field(None) if self.body.include_usage else b""
        out.write(self._opening(answer, encoders, usage))
        await relay([answer], _ChatStream(self, answer, encoders, out, usage), out)
        if self.body.include_usage:
            out.write(encoders[0].usage(answer.usage))

    def whole(
        self, answer: Answer, choices: Sequence[Choice], head: tuple[str, int, str]
    ) -> Response:
        """The answer as one JSON object."""
        answer_id, created, model = head
        found: dict[str, Any] = {
            "id": answer_id,
            "object": "chat.completion",
            "created": created,
            "model": model,
            "choices": [self._choice(choice) for choice in choices],
            "usage": answer.usage.wire(),
        }
        if self.body.return_token_ids:
            found["prompt_token_ids"] = answer.prompt_token_ids
        if answer.prompt_logprobs is not None:
            found["prompt_logprobs"] = prompt_logprobs(self._forms, answer.prompt_logprobs)
        return json_response(found)

    def _opening(self, answer: Answer, encoders: Sequence[ChatChunks], usage: bytes) -> bytes:
        top = usage
        if self.body.return_token_ids:
            top += field("prompt_token_ids", answer.prompt_token_ids)
        opened = [encoder.role(top=top) for encoder in encoders]
        if self._echo:
            echo = Delta((TextPart(self._echo),))
            opened += [encoder.delta(echo, top=usage) for encoder in encoders]
        return b"".join(opened)

    def chunk(self, encoder: ChatChunks, given: Delta, usage: bytes) -> bytes:
        """What is new of a choice; b"": nothing that the client wants."""
        delta = given if self.body.include_reasoning else _without_reasoning(given)
        if not delta.parts and not delta.finish_reason:
            return b""
        return encoder.delta(
            delta, logprobs=self._logprobs(delta), extra=self._ids(delta), top=usage
        )

    def _logprobs(self, delta: Delta) -> bytes:
        if not delta.logprobs:
            return NULL
        return encode_json(chat_logprobs(self._forms, delta.logprobs))

    def _ids(self, delta: Delta) -> bytes:
        return field("token_ids", delta.token_ids) if self.body.return_token_ids else b""

    def _choice(self, choice: Choice) -> dict[str, Any]:
        asked = self.body.num_logprobs is not None
        found = {
            "index": choice.index,
            "message": self._message(choice),
            "logprobs": chat_logprobs(self._forms, choice.logprobs) if asked else None,
            "finish_reason": choice.finish_reason,
            "stop_reason": choice.stop_reason,
        }
        return found | ({"token_ids": choice.token_ids} if self.body.return_token_ids else {})

    def _message(self, choice: Choice) -> dict[str, Any]:
        text, calls = self._echo + choice.text, choice.tool_calls
        message: dict[str, Any] = {
            "role": "assistant",
            "content": text if text or not calls else None,
            "refusal": None,
        }
        if calls:
            message["tool_calls"] = [_tool_call(call) for call in calls]
        if self.body.include_reasoning and (thoughts := choice.reasoning):
            message |= {"reasoning": thoughts, "reasoning_content": thoughts}
        return message


class _ChatStream:
    """Writes what comes of each choice as chunks. `usage`: what they say of it, unless the client
    wants to be told all along.
    """

    def __init__(
        self,
        writer: ChatWriter,
        answer: Answer,
        encoders: Sequence[ChatChunks],
        out: ResponseBody,
        usage: bytes,
    ) -> None:
        self._writer = writer
        self._answer = answer
        self._encoders = encoders
        self._out = out
        self._usage = usage
        self._counts = writer.body.continuous_usage

    def text(self, index: int, text: str) -> None:
        usage = self._usage_now() if self._counts else self._usage
        self._out.write(self._encoders[index].text(text, usage))

    def delta(self, index: int, delta: Delta) -> None:
        usage = self._usage_now() if self._counts else self._usage
        self._out.write(self._writer.chunk(self._encoders[index], delta, usage))

    def _usage_now(self) -> bytes:
        return usage_field(self._answer.usage)


def _tool_call(call: ToolCall) -> dict[str, Any]:
    return {
        "id": call.call_id,
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    }


def _without_reasoning(delta: Delta) -> Delta:
    parts = [part for part in delta.parts if not isinstance(part, ReasoningPart)]
    return msgspec.structs.replace(delta, parts=parts)
