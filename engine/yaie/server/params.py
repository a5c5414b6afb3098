"""From a wire request to sampling parameters: defaults of the model, limits of the context."""

import json
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from yaie.config import ModelInfo
from yaie.core.request import Grammar, SamplingParams
from yaie.text.bad_words import Encoder, bad_words_ids
from yaie_api.errors import ContextLengthError, InvalidRequestError
from yaie_api.http.openai import ChatCompletionRequest, GenerationRequest
from yaie_api.logs import fields

log = logging.getLogger(__name__)

_DEFAULTED: Final = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
_AS_GIVEN: Final = (*_DEFAULTED, "seed", "min_tokens", "stop")
"""Not passed on when they are None: then the checkpoint's default holds, or the engine's."""
_COPIED: Final = (
    "n", "presence_penalty", "frequency_penalty", "ignore_eos", "skip_special_tokens",
    "include_stop_str_in_output", "stop_token_ids", "allowed_token_ids", "bad_words",
)  # fmt: skip


def generation_defaults(folder: Path) -> dict[str, Any]:
    """Return the sampling defaults of the checkpoint's `generation_config.json`.

    If a value is out of range, a warning is logged and the file is ignored: a checkpoint must not
    break every request.
    """
    path = folder / "generation_config.json"
    if not path.is_file():
        return {}
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        wanted = {name: config[name] for name in _DEFAULTED if config.get(name) is not None}
        if config.get("do_sample") is False:
            wanted = {}
        SamplingParams(**wanted)
    except (ValueError, AttributeError, InvalidRequestError) as error:
        log.warning("generation_config.json is ignored", extra=fields(reason=str(error)))
        return {}
    return wanted


def sampling_params(
    request: GenerationRequest,
    model: ModelInfo,
    tokenizer: Encoder,
    *,
    max_tokens: int,
    defaults: Mapping[str, Any],
    grammar: Grammar | None = None,
    prompt_logprobs: int | None = None,
) -> SamplingParams:
    """Check a request against the model and fill in what it leaves open.

    Args:
        request: the wire request.
        model: what the engine serves.
        tokenizer: turns bad words into ids.
        max_tokens: most tokens to generate, from `output_room`.
        defaults: values for sampling fields that the client left out.
        grammar: the form that the output must have.
        prompt_logprobs: how many of the likeliest tokens to return beside each prompt token.

    Raises:
        InvalidRequestError: a value is out of range.

    """
    check_ids("logit_bias", request.biases, model)
    check_ids("allowed_token_ids", request.allowed_token_ids or (), model)
    check_ids("stop_token_ids", request.stop_token_ids or (), model)
    name = "top_logprobs" if isinstance(request, ChatCompletionRequest) else "logprobs"
    _check_logprobs(name, request.num_logprobs, model)
    _check_logprobs("prompt_logprobs", prompt_logprobs, model)
    given = {name: getattr(request, name) for name in _AS_GIVEN}
    params = SamplingParams(
        **dict(defaults) | {name: v for name, v in given.items() if v is not None},
        **{name: getattr(request, name) for name in _COPIED},
        max_tokens=max_tokens,
        logit_bias=tuple(request.biases.items()),
        bad_words_ids=bad_words_ids(request.bad_words or (), tokenizer),
        logprobs=request.num_logprobs,
        prompt_logprobs=prompt_logprobs,
        grammar=grammar,
    )
    if params.n > 1 and params.greedy:
        raise InvalidRequestError(
            "n must be 1 when temperature is 0: all outputs would be the same.", param="n"
        )
    return params


def output_room(
    model: ModelInfo, prompt_tokens: int, asked: int | None, *, default: int | None, param: str
) -> int:
    """Return the largest number of tokens to generate.

    `asked`: what the client wants; None: `default`, but at most what the context has left.

    Raises:
        ContextLengthError: prompt and output do not fit the context.
        InvalidRequestError: `asked` is negative.

    """
    room = model.max_model_len - prompt_tokens
    if asked is not None and asked < 0:
        raise InvalidRequestError(
            f"max_tokens must not be negative, got {asked}.", param="max_tokens"
        )
    if room < min(asked if asked is not None else 1, 1) or (asked or 0) > room:
        raise ContextLengthError(model.max_model_len, prompt_tokens, asked, param=param)
    if asked is not None:
        return asked
    return room if default is None else min(default, room)


def check_ids(name: str, token_ids: Iterable[int], model: ModelInfo) -> None:
    """Check that every token id is in the vocabulary.

    Raises:
        InvalidRequestError: an id is beyond it.

    """
    largest = max(token_ids, default=0)
    if largest >= model.vocab_size:
        raise InvalidRequestError(
            f"{name} has token id {largest}; the vocabulary has {model.vocab_size}.", param=name
        )


def kept_tokens(wanted: int, most: int) -> int:
    """Return how many tokens of a prompt `truncate_prompt_tokens` keeps; -1 keeps `most`.

    Raises:
        InvalidRequestError: `wanted` is above `most`.

    """
    if wanted > most:
        raise InvalidRequestError(
            f"truncate_prompt_tokens must be at most {most}.", param="truncate_prompt_tokens"
        )
    return most if wanted == -1 else wanted


def _check_logprobs(name: str, count: int | None, model: ModelInfo) -> None:
    most = model.max_logprobs
    if count is None or most == -1 or (model.vocab_size if count == -1 else count) <= most:
        return
    asked = " is -1, which asks for every token; it" if count == -1 else ""
    raise InvalidRequestError(f"{name}{asked} must be at most {most}.", param=name)
