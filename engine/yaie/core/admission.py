"""Whether a request can be taken at all. Every refusal says why and what to change."""

from dataclasses import dataclass

from yaie.core.messages import Generate, Rejected
from yaie.core.radix import TOKEN_BYTES
from yaie_api.errors import ContextLengthError, InvalidRequestError, YaieError

MAX_TOKEN_ID = 2 ** (8 * TOKEN_BYTES - 1) - 1


@dataclass(frozen=True, slots=True)
class Limits:
    """`max_model_len`: longest sequence in tokens, by the model and by the KV cache."""

    max_num_seqs: int
    max_num_queued_reqs: int
    max_model_len: int
    vocab_size: int


def validate(request: Generate, limits: Limits) -> None:
    """Raise `InvalidRequestError` for a request that can never run."""
    prompt, sampling = request.prompt_token_ids, request.sampling
    if not prompt:
        raise InvalidRequestError("The prompt must have at least one token.", param="prompt")
    if len(prompt) + (sampling.max_tokens or 1) > limits.max_model_len:
        raise ContextLengthError(limits.max_model_len, len(prompt), sampling.max_tokens)
    _check_token_ids("prompt", prompt, limits.vocab_size)
    _check_token_ids("stop_token_ids", sampling.stop_token_ids, limits.vocab_size)


def _check_token_ids(param: str, token_ids: tuple[int, ...], vocab_size: int) -> None:
    """An id outside the vocabulary would make the device read out of bounds."""
    if token_ids and not 0 <= min(token_ids) <= max(token_ids) < vocab_size:
        raise InvalidRequestError(
            f"{param} has a token id outside the vocabulary (0 to {vocab_size - 1}).", param=param
        )


def rejection(request_id: str, error: YaieError) -> Rejected:
    """The answer that carries `error` to the user."""
    return Rejected(
        request_id=request_id,
        status=error.status,
        code=error.code or error.type,
        message=error.message,
        param=error.param,
        retry_after_s=error.retry_after_s,
    )
