"""POST /v1/completions: one prompt or several, each a text or token ids."""

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, Sequence
from functools import partial, reduce
from operator import add
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from yaie.server.answer import Answer, Choice
from yaie.server.chunks import TextChunks, usage_field
from yaie.server.http import json_response, left_response, read_json, service_of
from yaie.server.output import Delta
from yaie.server.params import sampling_params
from yaie.server.service import Service
from yaie.server.stream import EventStream, until_disconnect
from yaie_api.errors import ContextLengthError, InvalidRequestError
from yaie_api.openai import CompletionRequest, Usage, parse

DEFAULT_MAX_TOKENS: Final = 16
Head = tuple[str, int, str]
"""Id, time of creation and model of an answer."""


async def completions(request: Request) -> Any:
    started_s = time.monotonic()
    service = service_of(request)
    service.refuse_when_draining()
    body = parse(CompletionRequest, await read_json(request))
    model = service.check_model(body.model)
    service.count_unknown(body.model_extra)
    answers = await start_all(service, body, started_s)
    head = (f"cmpl-{uuid.uuid4().hex}", int(time.time()), model)
    if body.stream:
        return EventStream(completion_events(answers, head, body))
    choices = await until_disconnect(request.receive, _all_whole(answers))
    return left_response() if choices is None else _completion(answers, choices, head)


async def start_all(service: Service, body: CompletionRequest, started_s: float) -> list[Answer]:
    """Submit every prompt. When one is refused, none goes on."""
    prompts = [await _encode(service, body, prompt) for prompt in body.prompts()]
    starts = [asyncio.ensure_future(_start(service, body, p, started_s)) for p in prompts]
    try:
        return list(await asyncio.gather(*starts))
    except BaseException:
        for start in starts:
            start.cancel()
        for result in await asyncio.gather(*starts, return_exceptions=True):
            if isinstance(result, Answer):
                result.close()
        raise


async def _start(
    service: Service, body: CompletionRequest, prompt_ids: list[int], started_s: float
) -> Answer:
    try:
        sampling = sampling_params(
            body,
            prompt_tokens=len(prompt_ids),
            output_limit=body.max_tokens,
            default_limit=DEFAULT_MAX_TOKENS,
            context_tokens=service.info.max_model_len,
            defaults=service.defaults,
        )
    except ContextLengthError as error:
        error.param = "prompt"
        raise
    return await service.start(prompt_ids, sampling, started_s=started_s, salt=body.cache_salt)


async def _encode(service: Service, body: CompletionRequest, prompt: str | list[int]) -> list[int]:
    tokenizer = service.tokenizer
    if isinstance(prompt, str):
        encode = partial(tokenizer.encode, prompt, add_special_tokens=body.add_special_tokens)
        prompt = await service.tokenize(len(prompt), encode)
        if not prompt:
            raise InvalidRequestError("prompt must not be empty.", param="prompt")
    elif max(prompt) >= service.info.vocab_size:
        raise InvalidRequestError(
            f"prompt has token id {max(prompt)}; the vocabulary has {service.info.vocab_size}.",
            param="prompt",
        )
    return prompt


async def completion_events(
    answers: Sequence[Answer], head: Head, body: CompletionRequest
) -> AsyncGenerator[bytes]:
    """Chunks of all choices as they come, then usage where asked for."""
    count = sum(answer.num_outputs for answer in answers)
    encoders = [TextChunks(*head, index=index) for index in range(count)]
    try:
        no_usage = usage_field(None) if body.include_usage else b""
        async for index, delta in interleaved(answers):
            usage = usage_field(_sum_usage(answers)) if body.continuous_usage else no_usage
            yield encoders[index].delta(delta, usage=usage)
        if body.include_usage:
            yield encoders[0].usage(_sum_usage(answers))
    finally:
        for answer in answers:
            answer.close()


async def interleaved(answers: Sequence[Answer]) -> AsyncGenerator[tuple[int, Delta]]:
    """(index of the choice, delta) of several answers in the order in which they come.

    Choices are counted through: those of the first answer, then those of the second. The first
    error ends all of them.
    """
    queue: asyncio.Queue[tuple[int, Delta] | None] = asyncio.Queue()

    async def forward(first: int, answer: Answer) -> None:
        async for index, delta in answer.deltas():
            queue.put_nowait((first + index, delta))

    async def forward_all() -> None:
        try:
            firsts = (i * answers[0].num_outputs for i in range(len(answers)))
            await asyncio.gather(*map(forward, firsts, answers))
        finally:
            queue.put_nowait(None)

    work = asyncio.ensure_future(forward_all())
    try:
        while (item := await queue.get()) is not None:
            yield item
        await work
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


async def _all_whole(answers: Sequence[Answer]) -> list[Choice]:
    try:
        wholes = await asyncio.gather(*(answer.whole() for answer in answers))
        return [choice for whole in wholes for choice in whole]
    finally:
        for answer in answers:
            answer.close()


def _sum_usage(answers: Sequence[Answer]) -> Usage:
    return reduce(add, (answer.usage for answer in answers))


def _completion(answers: Sequence[Answer], choices: Sequence[Choice], head: Head) -> Response:
    answer_id, created, model = head
    return json_response(
        {
            "id": answer_id,
            "object": "text_completion",
            "created": created,
            "model": model,
            "choices": [_choice(index, choice) for index, choice in enumerate(choices)],
            "usage": _sum_usage(answers).wire(),
        }
    )


def _choice(index: int, choice: Choice) -> dict[str, Any]:
    return {
        "index": index,
        "text": choice.text,
        "logprobs": None,
        "finish_reason": choice.finish_reason,
        "stop_reason": choice.stop_reason,
    }
