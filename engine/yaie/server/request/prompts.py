"""From what a client sends to the token ids that the engine reads, within limits of size and time.

Short texts are rendered and tokenized at once, long ones and slow templates beside the event loop.
A text that cannot fit the context, whatever its tokens are, is refused before anybody counts them.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from yaie.server.params import check_ids, kept_tokens
from yaie.server.service import IN_THREAD_CHARACTERS, Service
from yaie.text.prompt.conversation import conversation_ids
from yaie.text.prompt.sandbox import TemplateTimeoutError
from yaie.text.prompt.template import RENDER_S
from yaie_api.errors import InvalidRequestError
from yaie_api.http.openai import ChatCompletionRequest, CompletionRequest

INLINE_S: Final = 0.05
"""So long may a template hold up everybody; after that it starts again beside the event loop."""


async def chat_ids(service: Service, body: ChatCompletionRequest) -> list[int]:
    """The prompt of a conversation.

    Raises:
        InvalidRequestError: the template refuses it, or it takes too long.
        ContextLengthError: it cannot fit.

    """
    work = partial(_chat_ids, service, body)
    return _cut(service, await rendered(body.num_characters, work), body.truncate_prompt_tokens)


def _chat_ids(service: Service, body: ChatCompletionRequest, *, limit_s: float) -> list[int]:
    fits = service.info.max_model_len if body.truncate_prompt_tokens is None else None
    return conversation_ids(
        service.tokenizer, service.tool_format, body, limit_s=limit_s, limit_tokens=fits
    )


async def rendered(size: int, work: Callable[..., list[int]]) -> list[int]:
    """Token ids of a rendered conversation. `work` takes `limit_s`; `size` is in characters.

    Raises:
        InvalidRequestError: what `work` raises, or it takes too long.

    """
    try:
        if size < IN_THREAD_CHARACTERS:
            return work(limit_s=INLINE_S)
    except TemplateTimeoutError:
        pass  # beside the event loop it may take longer
    try:
        return await asyncio.to_thread(work, limit_s=RENDER_S)
    except TemplateTimeoutError:
        raise InvalidRequestError(
            "The chat template takes too long on these messages.", param="messages"
        ) from None


async def prompt_ids(
    service: Service, body: CompletionRequest, prompt: str | list[int]
) -> list[int]:
    """One prompt of a text completion.

    Raises:
        InvalidRequestError: no tokens, or ids beyond the vocabulary.
        ContextLengthError: it cannot fit.

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
    return _cut(service, prompt, body.truncate_prompt_tokens)


def _cut(service: Service, ids: list[int], keep: int | None) -> list[int]:
    """The last `keep` tokens; -1: as many as the context takes beside one of output."""
    if keep is None:
        return ids
    return ids[-kept_tokens(keep, service.info.max_model_len - 1) :]
