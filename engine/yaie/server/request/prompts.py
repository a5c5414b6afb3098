"""Turns what a client sends into token ids, within limits of size and time.

A short text is rendered and tokenized in the event loop, a long one or a slow template in a thread.
A text that is too long for the context, whatever its tokens are, is refused before it is tokenized.
"""

import asyncio
from functools import partial
from typing import Final

from yaie.server.params import check_ids, kept_tokens
from yaie.server.service import IN_THREAD_CHARACTERS, Service
from yaie.text.prompt.conversation import conversation_ids
from yaie.text.prompt.sandbox import TemplateTimeoutError
from yaie.text.prompt.template import RENDER_S
from yaie_api.errors import InvalidRequestError
from yaie_api.http.openai import ChatCompletionRequest, CompletionRequest, TokenizeRequest

INLINE_S: Final = 0.05
"""How long a template may block the event loop; after that it starts again in a thread."""


async def chat_ids(
    service: Service, body: ChatCompletionRequest | TokenizeRequest, *, limited: bool = True
) -> list[int]:
    """Render a conversation and tokenize it. A `TokenizeRequest` may be of any length, and any
    conversation that is not `limited`: its tokens are only counted.

    Raises:
        InvalidRequestError: the template refuses the messages, or takes too long.
        ContextLengthError: a chat without `truncate_prompt_tokens` cannot fit the context.

    """
    limit_tokens = None
    if isinstance(body, ChatCompletionRequest) and body.truncate_prompt_tokens is None:
        limit_tokens = service.info.max_model_len if limited else None
    work = partial(
        conversation_ids, service.tokenizer, service.tool_format, body, limit_tokens=limit_tokens
    )
    try:
        if body.num_characters < IN_THREAD_CHARACTERS:
            return _cut(service, body, work(limit_s=INLINE_S))
    except TemplateTimeoutError:
        pass  # in a thread it may take longer
    try:
        ids = await asyncio.to_thread(work, limit_s=RENDER_S)
    except TemplateTimeoutError:
        raise InvalidRequestError(
            "The chat template takes too long on these messages.", param="messages"
        ) from None
    return _cut(service, body, ids)


async def prompt_ids(
    service: Service, body: CompletionRequest, prompt: str | list[int]
) -> list[int]:
    """Tokenize or check one prompt of a text completion.

    Raises:
        InvalidRequestError: it has no tokens, or ids beyond the vocabulary.
        ContextLengthError: it cannot fit the context.

    """
    if isinstance(prompt, str):
        if body.truncate_prompt_tokens is None:
            service.tokenizer.check_fits(prompt, service.info.max_model_len, param="prompt")
        encode = partial(
            service.tokenizer.encode, prompt, add_special_tokens=body.add_special_tokens
        )
        prompt = await service.tokenize(len(prompt), encode)
        if not prompt:
            raise InvalidRequestError("prompt must not be empty.", param="prompt")
    else:
        check_ids("prompt", prompt, service.info)
    return _cut(service, body, prompt)


def _cut(
    service: Service,
    body: ChatCompletionRequest | CompletionRequest | TokenizeRequest,
    ids: list[int],
) -> list[int]:
    """Return the ids that `truncate_prompt_tokens` keeps: the last, or where the right side is cut
    the first; -1: as many as the context holds beside one output token.
    """
    if isinstance(body, TokenizeRequest) or body.truncate_prompt_tokens is None:
        return ids
    keep = kept_tokens(body.truncate_prompt_tokens, service.info.max_model_len - 1)
    return ids[:keep] if body.truncation_side == "right" else ids[-keep:]
