"""Checks whether a request can be served at all. Every error says why not and what to change."""

from collections.abc import Collection
from dataclasses import dataclass

from yaie.core.matcher import Matcher
from yaie.core.messages import Generate, Rejected
from yaie.core.outputs import NO_TOKEN_ALLOWED
from yaie.core.request import SamplingParams
from yaie_api.errors import ContextLengthError, InvalidRequestError, YaieError


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """`max_model_len`: longest sequence in tokens, limited by the model and the KV cache.
    `max_logprobs`: maximum of `logprobs`; -1: the whole vocabulary.
    """

    max_num_queued_reqs: int
    max_model_len: int
    vocab_size: int
    max_logprobs: int


def validate(request: Generate, limits: RequestLimits) -> None:
    """Refuse a request that can never run.

    Raises:
        ContextLengthError: the prompt and the requested tokens are longer than the context.
        InvalidRequestError: the prompt is empty, or a field is out of range.

    """
    prompt, sampling = request.prompt_token_ids, request.sampling
    if not prompt:
        raise InvalidRequestError("The prompt must have at least one token.", param="prompt")
    wanted = 0 if request.pooling is not None else sampling.max_tokens
    if len(prompt) + (1 if wanted is None else wanted) > limits.max_model_len:
        raise ContextLengthError(limits.max_model_len, len(prompt), wanted)
    room = limits.max_model_len - len(prompt)
    if sampling.min_tokens > room:  # possible only if max_tokens is None
        raise InvalidRequestError(
            f"min_tokens must be at most {room}, which is what the context has left.",
            param="min_tokens",
        )
    if request.timeout_s is not None and not request.timeout_s > 0:
        raise InvalidRequestError("timeout_s must be above 0.", param="timeout")
    _check_token_ids("prompt", prompt, limits.vocab_size)
    _check_vocabulary(sampling, limits.vocab_size)
    for name in ("logprobs", "prompt_logprobs"):
        _check_logprobs(name, getattr(sampling, name), limits)
    if request.resumed_token_ids:
        _check_resumed(request, limits)


def _check_resumed(request: Generate, limits: RequestLimits) -> None:
    """Refuse an output that cannot go on."""
    sampling, resumed = request.sampling, request.resumed_token_ids
    if request.pooling is not None or sampling.n != 1 or sampling.prompt_logprobs is not None:
        raise InvalidRequestError("Only a single output without prompt_logprobs can be resumed.")
    room = limits.max_model_len - len(request.prompt_token_ids)
    if len(resumed) >= min(room, room if sampling.max_tokens is None else sampling.max_tokens):
        raise InvalidRequestError("The resumed output has reached its length already.")
    _check_token_ids("resumed_token_ids", resumed, limits.vocab_size)


def _check_vocabulary(sampling: SamplingParams, vocab_size: int) -> None:
    _check_token_ids("stop_token_ids", sampling.stop_token_ids, vocab_size)
    _check_token_ids("allowed_token_ids", sampling.allowed_token_ids or (), vocab_size)
    _check_token_ids("logit_bias", [token for token, _ in sampling.logit_bias], vocab_size)
    for word in sampling.bad_words_ids:
        _check_token_ids("bad_words", word, vocab_size)
    if sampling.allowed_token_ids is not None:
        _check_choice(frozenset(sampling.allowed_token_ids), sampling)


def _check_choice(allowed: frozenset[int], sampling: SamplingParams) -> None:
    """Refuse constraints that leave no first token. Conflicts with a grammar or with stop tokens
    are detected while the output is generated.
    """
    if allowed <= {word[0] for word in sampling.bad_words_ids if len(word) == 1}:
        raise InvalidRequestError(
            NO_TOKEN_ALLOWED.message, param="allowed_token_ids", code=NO_TOKEN_ALLOWED.code
        )


def _check_token_ids(param: str, token_ids: Collection[int], vocab_size: int) -> None:
    """Refuse an id outside the vocabulary: it would make the device read out of bounds."""
    if token_ids and not 0 <= min(token_ids) <= max(token_ids) < vocab_size:
        raise InvalidRequestError(
            f"{param} has a token id outside the vocabulary (0 to {vocab_size - 1}).", param=param
        )


def _check_logprobs(name: str, wanted: int | None, limits: RequestLimits) -> None:
    most = limits.max_logprobs
    if wanted is None or most == -1:
        return
    if (limits.vocab_size if wanted == -1 else wanted) <= most:
        return
    asked = "all" if wanted == -1 else str(wanted)
    raise InvalidRequestError(
        f"{name}: {asked} were asked for; at most {most} are allowed.", param=name
    )


def consume_resumed(matcher: Matcher | None, request: Generate) -> None:
    """Bring a new matcher to where the output goes on.

    Raises:
        InvalidRequestError: the grammar does not allow what is resumed, or nothing after it.

    """
    if matcher is None or not request.resumed_token_ids:
        return
    if not all(map(matcher.consume, request.resumed_token_ids)) or matcher.is_finished:
        raise InvalidRequestError("The resumed output does not have the form that is asked for.")


def duplicate(request_id: str) -> InvalidRequestError:
    """The error for a request whose id is in use by a live request."""
    return InvalidRequestError(
        f"A request with id {request_id!r} is running already.",
        param="request_id",
        code="duplicate_request_id",
    )


def rejection(request_id: str, error: YaieError) -> Rejected:
    """The message that carries `error` to the user."""
    return Rejected(
        request_id=request_id,
        status=error.status,
        code=error.code,
        message=error.message,
        param=error.param,
        retry_after_s=error.retry_after_s,
    )
