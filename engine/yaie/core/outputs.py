"""Builds the messages about an output: its tokens, and how it ended. Pure functions."""

from collections.abc import Iterable
from typing import NamedTuple

from yaie.core.messages import FinishReason, Generate, TokenLogprobs, Tokens
from yaie.core.sequence import Sequence


class Failure(NamedTuple):
    """Why an output ends with "error": a code for programs, a sentence for users."""

    code: str
    message: str


NOT_FINITE = Failure(
    "not_finite", "The model produced values that are not finite for this request."
)
NO_TOKEN_ALLOWED = Failure(
    "no_token_allowed",
    "The request's constraints allow no token: what it allows, what it forbids and the output's "
    "form exclude each other. Ask for less at once.",
)
DEADLINE = Failure("deadline_exceeded", "The request did not end in the time it was given.")
GRAMMAR = Failure("grammar", "The output's form cannot be followed to its end; use a simpler one.")
NO_VECTOR = Failure("engine_error", "The engine made no vector of this request.")
BROKEN = Failure("engine_error", "The engine failed and has to be restarted.")
CLOSING = Failure("engine_error", "The engine is shutting down.")


def step_failed(*, out_of_memory: bool) -> Failure:
    """The failure of a request whose step raised an error. Users never see the error's own text,
    which may contain anything; it goes to the log.
    """
    cause = " (out of memory)" if out_of_memory else ""
    return Failure("engine_error", f"The engine failed on this request{cause}.")


class FinishInfo(NamedTuple):
    """How an output ends. `failure` is set if and only if `reason` is "error"."""

    reason: FinishReason
    token_ids: tuple[int, ...] = ()
    stop_token_id: int | None = None
    logprobs: tuple[TokenLogprobs, ...] = ()
    pooled: bytes | None = None
    failure: Failure | None = None


ABORTED = FinishInfo("abort")


def failed(failure: Failure) -> FinishInfo:
    return FinishInfo("error", failure=failure)


def progress(sequence: Sequence, token: int, logprobs: TokenLogprobs | None) -> Tokens:
    """The message for one more token. The first one also has `prompt_logprobs` and `queued_s`."""
    once, sequence.first_output = sequence.first_output, None
    return Tokens(
        sequence.request_id,
        (token,),
        cached_tokens=sequence.cached_tokens,
        index=sequence.index,
        logprobs=() if logprobs is None else (logprobs,),
        prompt_logprobs=once.prompt_logprobs if once else None,
        queued_s=once.queued_s if once else None,
    )


def final(sequence: Sequence, finish: FinishInfo) -> Tokens:
    """The last message of an output that has started."""
    once, failure = sequence.first_output, finish.failure
    return Tokens(
        sequence.request_id,
        finish.token_ids,
        finish_reason=finish.reason,
        stop_token_id=finish.stop_token_id,
        cached_tokens=sequence.cached_tokens,
        error=failure.message if failure else None,
        error_code=failure.code if failure else None,
        index=sequence.index,
        logprobs=finish.logprobs,
        prompt_logprobs=once.prompt_logprobs if once else None,
        queued_s=once.queued_s if once else None,
        pooled=finish.pooled,
    )


def unstarted(
    request: Generate, failure: Failure | None, indices: Iterable[int] | None = None
) -> list[Tokens]:
    """The final messages of outputs that never started. `failure` None: they were aborted.
    `indices` None: all outputs of the request.
    """
    return [
        Tokens(
            request.request_id,
            (),
            finish_reason="error" if failure else "abort",
            error=failure.message if failure else None,
            error_code=failure.code if failure else None,
            index=index,
        )
        for index in (range(n_outputs(request)) if indices is None else indices)
    ]


def n_outputs(request: Generate) -> int:
    """Number of outputs. A pooled request has one, because all its vectors would be equal."""
    return 1 if request.pooling is not None else request.sampling.n
