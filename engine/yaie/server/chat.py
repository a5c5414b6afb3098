"""POST /v1/chat/completions."""

import time
import uuid
from collections.abc import AsyncGenerator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from yaie.server.answer import Answer, Delta
from yaie.server.http import json_response, left_response, read_json, service_of
from yaie.server.params import sampling_params
from yaie.server.service import Service
from yaie.server.stream import ChunkEncoder, EventStream, until_disconnect, usage_field
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
        encoder = ChunkEncoder("chat.completion.chunk", answer_id, created, model)
        return EventStream(chat_events(answer, encoder, body))
    delta = await until_disconnect(request.receive, answer.whole())
    if delta is None:
        return left_response()
    return _completion(answer, delta, {"id": answer_id, "created": created, "model": model})


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
    answer: Answer, encoder: ChunkEncoder, body: ChatCompletionRequest
) -> AsyncGenerator[bytes]:
    """Role, text, the reason of the end, and usage where asked for."""
    try:
        yield encoder.role(usage=usage_field(None) if body.include_usage else b"")
        async for delta in answer.deltas():
            usage = b""
            if body.include_usage:
                usage = usage_field(answer.usage if body.continuous_usage else None)
            yield encoder.text(
                delta.text, delta.finish_reason, stop_reason=delta.stop_reason, usage=usage
            )
        if body.include_usage:
            yield encoder.usage(answer.usage)
    finally:
        answer.close()


def _completion(answer: Answer, delta: Delta, head: dict[str, Any]) -> Response:
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": delta.text, "refusal": None},
        "logprobs": None,
        "finish_reason": delta.finish_reason,
        "stop_reason": delta.stop_reason,
    }
    usage = answer.usage.wire()
    return json_response(head | {"object": "chat.completion", "choices": [choice], "usage": usage})
