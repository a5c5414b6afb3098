"""Submits a checked prompt to the engine."""

import logging
import time
import uuid
from collections.abc import Callable, Sequence

import msgspec

from yaie.core.messages import Generate, Pooling
from yaie.core.request import SamplingParams
from yaie.server.answers.answer import Answer
from yaie.server.answers.output import Output
from yaie.server.answers.prefix_tracker import PrefixTracker
from yaie.server.request.open_request import ServeContext
from yaie.server.request.prefix_keys import published_key
from yaie.server.service import Service
from yaie.text.detokenizer import TextStream
from yaie.text.parts import OutputParser
from yaie_api.errors import InvalidRequestError
from yaie_api.http.openai import ChatCompletionRequest, GenerationRequest
from yaie_api.http.pooling import PoolingRequest
from yaie_api.logs import fields, request_id

prompt_log = logging.getLogger("yaie.prompts")


async def submit(
    context: ServeContext[GenerationRequest],
    prompt_ids: Sequence[int],
    sampling: SamplingParams,
    parser: Callable[[], OutputParser] | None = None,
) -> Answer:
    """Submit a prompt and return its answer once the engine has accepted it.

    `parser` makes the parser of each output; None: outputs are plain text.

    Raises:
        InvalidRequestError: the request has a priority, and this server does not schedule by it.
        YaieError: the engine refused the request, or is not ready.

    """
    check_priority(context)
    service = context.service
    if service.options.log_prompts:
        text = service.tokenizer.decode(prompt_ids, skip_special_tokens=False)
        prompt_log.info("prompt", extra=fields(text=text))
    recorder = context.recorder
    if recorder is not None:
        recorder.with_logprobs = sampling.logprobs is not None
        if sampling.seed is None and not sampling.greedy:
            sampling = msgspec.structs.replace(sampling, seed=recorder.identity.seed)
    command = generate_command(context, prompt_ids, sampling)
    submitted_s = time.monotonic()
    return Answer(
        await service.engine.submit(command),
        [_output(service, sampling, context.body, parser) for _ in range(sampling.n)],
        prompt_token_ids=command.prompt_token_ids,
        metrics=service.metrics,
        started_s=context.started_s,
        submitted_s=submitted_s,
        record=_log_output if service.options.log_prompts else None,
        tracker=_tracker(context, command),
        recorder=recorder,
    )


def check_priority(context: ServeContext[GenerationRequest | PoolingRequest]) -> None:
    """Refuse a priority where it would have no effect.

    Raises:
        InvalidRequestError: it is not 0, and this server does not schedule by priority.

    """
    if context.body.priority and not context.service.options.priorities:
        raise InvalidRequestError(
            "priority must be 0: this server does not schedule by priority.", param="priority"
        )


def generate_command(
    context: ServeContext[GenerationRequest | PoolingRequest],
    prompt_ids: Sequence[int],
    sampling: SamplingParams,
    pooling: Pooling | None = None,
) -> Generate:
    """Make the engine's command for one prompt of a request."""
    return Generate(
        # It begins with the HTTP request's id, so that the engine's logs can be searched for it.
        request_id=f"{request_id.get()}-{uuid.uuid4().hex[:12]}",
        prompt_token_ids=tuple(prompt_ids),
        sampling=sampling,
        priority=context.body.priority,
        salt=salt_of(context.tenant, context.body.cache_salt),
        tenant=context.tenant,
        timeout_s=context.timeout_s,
        pooling=pooling,
        resumed_token_ids=() if context.recorder is None else context.recorder.resumed_token_ids,
    )


def _tracker(context: ServeContext[GenerationRequest], command: Generate) -> PrefixTracker | None:
    """Make what publishes the request's prefix keys, if they are."""
    if context.prefix is None:
        return None
    service, body = context.service, context.body
    is_chat = isinstance(body, ChatCompletionRequest) and body.messages[-1].role != "assistant"
    return PrefixTracker(
        context.prefix,
        published_key(service, context.tenant),
        salt=command.salt,
        prompt=command.prompt_token_ids,
        is_chat=is_chat and command.sampling.n == 1,
        tie=service.engine.tie,
    )


def salt_of(tenant: str, wanted: str | None) -> str:
    """Return the prefix cache's salt. Two tenants never get the same one, whatever they ask for."""
    return f"{tenant}/{wanted or ''}" if tenant else wanted or ""


def _output(
    service: Service,
    sampling: SamplingParams,
    body: GenerationRequest,
    make_parser: Callable[[], OutputParser] | None,
) -> Output:
    parser = None if make_parser is None else make_parser()
    shown = frozenset[str]() if parser is None else parser.shown_special_tokens
    return Output(
        TextStream(service.tokenizer, sampling, shown),
        parser,
        stop_token_ids=sampling.stop_token_ids,
        keep_token_ids=body.return_token_ids,
        keep_text=service.options.log_prompts,
    )


def _log_output(text: str) -> None:
    prompt_log.info("output", extra=fields(text=text))
