"""POST /v1/chat/completions."""

import time
import uuid
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from yaie.server.answer import Answer, Choice
from yaie.server.chunks import ChatChunks, usage_field
from yaie.server.http import json_response, left_response, read_json, service_of
from yaie.server.params import sampling_params
from yaie.server.service import Service
from yaie.server.stream import EventStream, until_disconnect
from yaie_api.openai import ChatCompletionRequest, parse


async def chat_completions(request: Request) -> Any:
    started_s = time.monotonic()
    service = service_of(request)
    service.refuse_when_draining()
    body = parse(ChatCompletionRequest, await read_json(request))
    model = service.check_model(body.model)
    service.count_unknown(body.model_extra)
    answer = await start_chat(service, body, started_s)
    answer_id, created = f"chatcmpl-{uuid.uuid4().hex}", int(time.time())
    if body.stream:
        encoders = [
            ChatChunks(answer_id, created, model, index=index)
            for index in range(answer.num_outputs)
        ]
        return EventStream(chat_events(answer, encoders, body))
    choices = await until_disconnect(request.receive, answer.whole())
    if choices is None:
        return left_response()
    return _completion(answer, choices, {"id": answer_id, "created": created, "model": model})


async def start_chat(service: Service, body: ChatCompletionRequest, started_s: float) -> Answer:
    """Render, tokenize, check and submit."""
    conversation, tokenizer = body.conversation(), service.tokenizer
    prompt_ids = await service.tokenize(
        sum(len(turn["content"]) for turn in conversation),
        lambda: tokenizer.encode_chat(
            conversation,
            add_generation_prompt=body.add_generation_prompt,
            variables=body.template_variables,
        ),
    )
    sampling = sampling_params(
        body,
        prompt_tokens=len(prompt_ids),
        output_limit=body.output_limit,
        default_limit=None,
        context_tokens=service.info.max_model_len,
        defaults=service.defaults,
    )
    return await service.start(prompt_ids, sampling, started_s=started_s, salt=body.cache_salt)


async def chat_events(
    answer: Answer, encoders: Sequence[ChatChunks], body: ChatCompletionRequest
) -> AsyncGenerator[bytes]:
    """Roles, then what comes of each choice, and usage where asked for."""
    try:
        no_usage = usage_field(None) if body.include_usage else b""
        yield b"".join(encoder.role(usage=no_usage) for encoder in encoders)
        async for index, delta in answer.deltas():
            usage = usage_field(answer.usage) if body.continuous_usage else no_usage
            yield encoders[index].delta(delta, usage=usage)
        if body.include_usage:
            yield encoders[0].usage(answer.usage)
    finally:
        answer.close()


def _completion(answer: Answer, choices: Sequence[Choice], head: dict[str, Any]) -> Response:
    return json_response(
        head
        | {
            "object": "chat.completion",
            "choices": [_choice(choice) for choice in choices],
            "usage": answer.usage.wire(),
        }
    )


def _choice(choice: Choice) -> dict[str, Any]:
    return {
        "index": choice.index,
        "message": {"role": "assistant", "content": choice.text, "refusal": None},
        "logprobs": None,
        "finish_reason": choice.finish_reason,
        "stop_reason": choice.stop_reason,
    }
