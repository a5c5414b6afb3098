"""POST /v1/chat/completions."""

from collections.abc import Sequence
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from yaie.server.answers.answer import Answer, Choice
from yaie.server.answers.chunks import (
    NO_CHAT_IDS,
    NULL,
    ChatChunks,
    encode_json,
    field,
    usage_field,
)
from yaie.server.answers.output import Delta
from yaie.server.answers.relay import relay
from yaie.server.answers.response_body import ResponseBody
from yaie.server.answers.stream import EventStream, until_disconnect
from yaie.server.openai.logprobs import TokenForms, chat_logprobs, prompt_logprobs
from yaie.server.params import output_room, sampling_params
from yaie.server.request.http import json_response, left_response
from yaie.server.request.open_request import ServeContext, answer_id, open_request
from yaie.server.request.output_form import ANY_CALL, CallLimits, form_of
from yaie.server.request.prompts import chat_ids
from yaie.server.request.submit import submit
from yaie.text.parts import ReasoningPart, TextPart, ToolCall
from yaie.text.prompt.tokenizer import Tokenizer
from yaie_api.http.openai import ChatCompletionRequest


async def chat_completions(request: Request) -> Any:
    context = await open_request(request, ChatCompletionRequest, replays=_replays)
    answer = await start_chat(context)
    head = (answer_id("chatcmpl", context), context.created_s, context.model)
    writer = ChatWriter(context.service.tokenizer, context.body, answer, head)
    if context.body.stream:
        ping_s = context.service.options.sse_keep_alive_s
        return EventStream(writer.stream, ping_s=ping_s, recorder=context.recorder)
    choices = await until_disconnect(request.receive, answer.whole())
    return left_response() if choices is None else writer.whole(choices)


def _replays(body: ChatCompletionRequest) -> bool:
    """Whether another engine could continue the answer: a stream of one output."""
    return body.stream and body.n == 1 and body.prompt_logprobs is None


async def start_chat(
    context: ServeContext[ChatCompletionRequest], limits: CallLimits = ANY_CALL
) -> Answer:
    """Make the prompt, the output form and the sampling parameters of a chat, and submit it.

    Raises:
        YaieError: the request is wrong, or the engine does not take it.

    """
    service, body = context.service, context.body
    prompt = await chat_ids(service, body)
    size = body.form_size + limits.size
    form = await service.tokenize(size, lambda: form_of(service, body, prompt, limits))
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
    return await submit(context, prompt, sampling, form.parser)


class ChatWriter:
    """Writes one answer, whole or as chunks; it is the answer's sink. `head`: id, time, model."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        body: ChatCompletionRequest,
        answer: Answer,
        head: tuple[str, int, str],
    ) -> None:
        self._tokenizer = tokenizer
        self._body = body
        self._answer = answer
        self._head = head
        self._forms = TokenForms(tokenizer, as_ids=body.return_tokens_as_token_ids)
        last = body.messages[-1]
        self._echo = last.text if body.echo and last.role == "assistant" else ""
        self._encoders = [ChatChunks(*head, index=i) for i in range(answer.num_outputs)]
        self._counts = body.continuous_usage
        self._no_usage = usage_field(None) if body.include_usage else b""

    async def stream(self, out: ResponseBody) -> None:
        """Write the roles, then each choice as it comes, then the usage if it is asked for."""
        self._out = out
        out.write(self._opening())
        await relay([self._answer], self, out)
        if self._body.include_usage:
            out.write(self._encoders[0].usage(self._answer.usage))

    def text(self, index: int, text: str) -> None:
        """Write a chunk of choice `index` that is only text."""
        usage = usage_field(self._answer.usage) if self._counts else self._no_usage
        self._out.write(self._encoders[index].text(text, usage))

    def delta(self, index: int, delta: Delta) -> None:
        """Write any other chunk of it, unless it has nothing that the client asked for."""
        if not self._body.include_reasoning:
            delta = _without_reasoning(delta)
        if not delta.parts and not delta.finish_reason:
            return
        logprobs = NULL
        if delta.logprobs:
            logprobs = encode_json(chat_logprobs(self._forms, delta.logprobs))
        ids = field("token_ids", delta.token_ids) if self._body.return_token_ids else NO_CHAT_IDS
        encoder = self._encoders[index]
        self._out.write(encoder.delta(delta, logprobs=logprobs, ids=ids, top=self._usage_now()))

    def whole(self, choices: Sequence[Choice]) -> Response:
        """Return the answer as one JSON object."""
        (name, created, model), answer = self._head, self._answer
        of_prompt = None
        if answer.prompt_logprobs is not None:
            of_prompt = prompt_logprobs(self._forms, answer.prompt_logprobs)
        return json_response(
            {
                "id": name,
                "object": "chat.completion",
                "created": created,
                "model": model,
                "choices": [self._choice(choice) for choice in choices],
                "service_tier": None,
                "system_fingerprint": None,
                "usage": answer.usage.wire(),
                "prompt_logprobs": of_prompt,
                **self._of_prompt(),
                "kv_transfer_params": None,
            }
        )

    def _opening(self) -> bytes:
        """Encode the role of each choice, and what is echoed."""
        usage = self._usage_now()
        top = usage + b"".join(field(name, value) for name, value in self._of_prompt().items())
        opened = [encoder.role(top=top) for encoder in self._encoders]
        if self._echo:
            echo = Delta((TextPart(self._echo),))
            opened += [encoder.delta(echo, top=usage) for encoder in self._encoders]
        return b"".join(opened)

    def _of_prompt(self) -> dict[str, Any]:
        """Return what the request asks to be told of the prompt."""
        body, ids = self._body, self._answer.prompt_token_ids
        text = None
        if body.return_prompt_text:
            text = self._tokenizer.decode(ids, skip_special_tokens=False)
        return {"prompt_token_ids": ids if body.return_token_ids else None, "prompt_text": text}

    def _usage_now(self) -> bytes:
        """Return the usage field of a chunk."""
        return usage_field(self._answer.usage) if self._counts else self._no_usage

    def _choice(self, choice: Choice) -> dict[str, Any]:
        asked = self._body.num_logprobs is not None
        return {
            "index": choice.index,
            "message": self._message(choice),
            "logprobs": chat_logprobs(self._forms, choice.logprobs) if asked else None,
            "finish_reason": choice.finish_reason,
            "stop_reason": choice.stop_reason,
            "token_ids": choice.token_ids if self._body.return_token_ids else None,
            "routed_experts": None,
        }

    def _message(self, choice: Choice) -> dict[str, Any]:
        text, calls = self._echo + choice.text, choice.tool_calls
        thoughts = (choice.reasoning or None) if self._body.include_reasoning else None
        return {
            "role": "assistant",
            "content": text if text or not calls else None,
            "refusal": None,
            "annotations": None,
            "audio": None,
            "function_call": None,
            "tool_calls": [_tool_call(call) for call in calls] or None,
            "reasoning": thoughts,
            "reasoning_content": thoughts,
        }


def _tool_call(call: ToolCall) -> dict[str, Any]:
    return {
        "id": call.call_id,
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    }


def _without_reasoning(delta: Delta) -> Delta:
    parts = [part for part in delta.parts if not isinstance(part, ReasoningPart)]
    return msgspec.structs.replace(delta, parts=parts)
