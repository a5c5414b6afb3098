"""POST /v1/completions: completes one prompt or several, each a text or token ids."""

import asyncio
from typing import Any, Final

from starlette.requests import Request

from yaie.core.request import Grammar
from yaie.server.answers.answer import Answer
from yaie.server.answers.stream import EventStream, until_disconnect
from yaie.server.openai.completion_writer import CompletionWriter, all_whole
from yaie.server.params import output_room, sampling_params
from yaie.server.request.http import left_response
from yaie.server.request.open_request import ServeContext, answer_id, open_request
from yaie.server.request.prompts import prompt_ids
from yaie.server.request.submit import submit
from yaie.text.grammar import forms
from yaie_api.http.openai import CompletionRequest

DEFAULT_MAX_TOKENS: Final = 16


async def completions(request: Request) -> Any:
    context = await open_request(request, CompletionRequest, replays=_replays)
    service, body = context.service, context.body
    answers = await start_all(context)
    head = (answer_id("cmpl", context), context.created_s, context.model)
    writer = CompletionWriter(service.tokenizer, body, answers, head)
    if body.stream:
        ping_s = service.options.sse_keep_alive_s
        return EventStream(writer.stream, ping_s=ping_s, recorder=context.recorder)
    wholes = await until_disconnect(request.receive, all_whole(answers))
    return left_response() if wholes is None else writer.whole(wholes)


def _replays(body: CompletionRequest) -> bool:
    """Whether another engine could continue the answer: a stream of one output."""
    is_single = body.n == 1 and len(body.prompts()) == 1
    return body.stream and is_single and _prompt_logprobs(body) is None


async def start_all(context: ServeContext[CompletionRequest]) -> list[Answer]:
    """Submit every prompt. If one is refused, the others are aborted.

    Raises:
        YaieError: a prompt is wrong, or the engine does not take it.

    """
    service, body = context.service, context.body
    grammar = await service.tokenize(body.form_size, lambda: forms.grammar_of(body.formats))
    prompts = [await prompt_ids(service, body, prompt) for prompt in body.prompts()]
    starts = [asyncio.ensure_future(_start(context, ids, grammar)) for ids in prompts]
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
    context: ServeContext[CompletionRequest], ids: list[int], grammar: Grammar | None
) -> Answer:
    service, body = context.service, context.body
    max_tokens = output_room(
        service.info, len(ids), body.max_tokens, default=DEFAULT_MAX_TOKENS, param="prompt"
    )
    sampling = sampling_params(
        body,
        service.info,
        service.tokenizer,
        max_tokens=max_tokens,
        defaults=service.defaults,
        grammar=grammar,
        prompt_logprobs=_prompt_logprobs(body),
    )
    return await submit(context, ids, sampling)


def _prompt_logprobs(body: CompletionRequest) -> int | None:
    """Return how many to compute: `logprobs` covers the prompt, too, if it is echoed."""
    asked = [body.prompt_logprobs] if body.prompt_logprobs is not None else []
    if body.echo and body.num_logprobs is not None:
        asked.append(body.num_logprobs)
    return -1 if -1 in asked else max(asked, default=None)
