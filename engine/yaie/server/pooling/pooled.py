"""Prompts to vectors: what embeddings, scores, ranks and classes share.

A request may have thousands of inputs. At most `CONCURRENCY` of them are in the engine at once, so
that one request does not fill its queue. If one fails or the client leaves, the others are aborted.
"""

import asyncio
import time
from collections.abc import AsyncIterable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from yaie.core.messages import Pooling, Tokens
from yaie.core.request import SamplingParams
from yaie.server import figures
from yaie.server.engine.generation import failure_of
from yaie.server.params import check_ids, kept_tokens
from yaie.server.request.open_request import ServeContext
from yaie.server.request.submit import check_priority, generate_command
from yaie.server.service import Service
from yaie.text import vectors
from yaie_api.errors import (
    ContextLengthError,
    InvalidRequestError,
    UnavailableError,
    YaieError,
)
from yaie_api.http.pooling import PoolingRequest

CONCURRENCY: Final = 128
_NOTHING: Final = SamplingParams(max_tokens=0, temperature=0.0)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Pooled:
    """The vector of one prompt, and how many tokens it took."""

    vector: vectors.Vector
    prompt_tokens: int
    cached_tokens: int


def embedding_pooling(service: Service) -> Pooling:
    """Return how the model's hidden states become an embedding."""
    return "mean" if service.info.pooling == "mean" else "last"


async def encode(
    context: ServeContext[PoolingRequest], prompt: str | list[int], *, special: bool, param: str
) -> list[int]:
    """Tokenize an input, and truncate it if the request says so.

    Raises:
        InvalidRequestError: it has no tokens, ids beyond the vocabulary or more than the context
            holds, or is to be truncated to more than that.

    """
    service, tokenizer = context.service, context.service.tokenizer
    if isinstance(prompt, str):
        work = partial(tokenizer.encode, prompt, add_special_tokens=special)
        prompt = await service.tokenize(len(prompt), work)
    return checked(context, prompt, param)


async def encode_pair(
    context: ServeContext[PoolingRequest], pair: tuple[str, str], *, param: str
) -> list[int]:
    """Tokenize two texts as one input of a cross-encoder. `param`: the field of the second."""
    work = partial(context.service.tokenizer.encode_pair, *pair)
    ids = await context.service.tokenize(sum(map(len, pair)), work)
    return checked(context, ids, param)


def checked(context: ServeContext[PoolingRequest], ids: list[int], param: str) -> list[int]:
    """Check token ids, and truncate them if the request says so.

    Raises:
        InvalidRequestError: there are none, one is beyond the vocabulary, or they are to be
            truncated to more than the context holds.
        ContextLengthError: more ids than the context holds.

    """
    service, body = context.service, context.body
    limit = service.info.max_model_len
    if body.truncate_prompt_tokens is not None:
        keep = kept_tokens(body.truncate_prompt_tokens, limit)
        ids = ids[:keep] if body.truncation_side == "right" else ids[-keep:]
    if not ids:
        raise InvalidRequestError(f"{param} must not be empty.", param=param)
    check_ids(param, ids, service.info)
    if len(ids) > limit:
        error = ContextLengthError(limit, len(ids), None)
        error.param = param
        raise error
    return ids


async def pool_all(
    context: ServeContext[PoolingRequest],
    prompts: Sequence[list[int]],
    pooling: Pooling,
    finish: Callable[[Pooled], T],
) -> list[T]:
    """Compute the vector of each prompt, and return `finish` of each, in the prompts' order.

    Raises:
        YaieError: the first failure; the other prompts are aborted.

    """
    check_priority(context)
    gate = asyncio.Semaphore(CONCURRENCY)

    async def one(prompt: list[int]) -> T:
        async with gate:
            return finish(await _pool(context, prompt, pooling))

    tasks = [asyncio.ensure_future(one(prompt)) for prompt in prompts]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pool(
    context: ServeContext[PoolingRequest], prompt: list[int], pooling: Pooling
) -> Pooled:
    service, started_s, outcome = context.service, time.monotonic(), "abort"
    command = generate_command(context, prompt, _NOTHING, pooling)
    generation = await service.engine.submit(command)
    try:
        tokens = await _last(generation)
        vector = _vector(tokens)
        outcome = "stop"
        figures.note(prompt_tokens=len(prompt), cached_tokens=tokens.cached_tokens)
        return Pooled(vector, len(prompt), tokens.cached_tokens)
    except YaieError:
        outcome = "error"
        raise
    finally:
        generation.close()
        service.metrics.finished(outcome, time.monotonic() - started_s)


async def _last(messages: AsyncIterable[Tokens]) -> Tokens:
    """Return the message that ends a request."""
    async for tokens in messages:
        if tokens.finish_reason is not None:
            return tokens
    raise UnavailableError("The engine gave this request up.", retry_after_s=1.0)


def _vector(tokens: Tokens) -> vectors.Vector:
    if tokens.pooled is not None:
        return vectors.from_bytes(tokens.pooled)
    if tokens.finish_reason == "error":
        raise failure_of(tokens)
    raise UnavailableError("The engine gave this request up.", retry_after_s=1.0)


def usage_of(pooled: Sequence[Pooled]) -> dict[str, Any]:
    """Return OpenAI's usage object for requests that generate no tokens."""
    tokens = sum(one.prompt_tokens for one in pooled)
    return {"prompt_tokens": tokens, "total_tokens": tokens}
