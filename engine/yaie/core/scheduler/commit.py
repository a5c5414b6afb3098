"""Applies the result of a step to its sequences: new tokens, vectors, ends."""

from collections.abc import Iterable
from itertools import repeat
from typing import NamedTuple

from yaie.core.batch import FORBIDDEN, Batch, Row, StepResult
from yaie.core.messages import TokenLogprobs, Tokens
from yaie.core.outputs import (
    GRAMMAR,
    NO_TOKEN_ALLOWED,
    NO_VECTOR,
    NOT_FINITE,
    FinishInfo,
    failed,
    progress,
)
from yaie.core.scheduler.lifecycle import RequestLifecycle
from yaie.core.sequence import FirstOutputInfo, Sequence


class _RowOutputs(NamedTuple):
    """The results of a row besides its first token."""

    logprobs: TokenLogprobs | None = None
    prompt_logprobs: tuple[TokenLogprobs, ...] | None = None
    pooled: bytes | None = None
    more_tokens: tuple[int, ...] = ()


_NO_EXTRAS = _RowOutputs()


def _extras(result: StepResult) -> Iterable[_RowOutputs]:
    """The further results of each row; an endless iterator of empty ones if no row has any."""
    if not (result.logprobs or result.prompt_logprobs or result.pooled or result.more_tokens):
        return repeat(_NO_EXTRAS)
    n_rows = len(result.tokens)
    none = (None,) * n_rows
    parts = (result.logprobs or none, result.prompt_logprobs or none, result.pooled or none)
    return map(_RowOutputs, *parts, result.more_tokens or ((),) * n_rows)


class StepCommitter:
    """Takes results in the order of their steps. `generated_tokens`: number of committed tokens."""

    def __init__(self, lifecycle: RequestLifecycle, vocab_size: int) -> None:
        self._lifecycle = lifecycle
        self._vocab_size = vocab_size
        self.generated_tokens = 0

    def take(self, batch: Batch, sequences: list[Sequence], result: StepResult) -> list[Tokens]:
        """Apply a result to the sequences. Rows with an older epoch than their sequence are
        ignored.

        Raises:
            ValueError: the result and the batch have different numbers of rows.

        """
        if not len(batch.rows) == len(result.tokens) == len(result.finite):
            raise ValueError(f"step {batch.step_id} has {len(batch.rows)} rows, its result not")
        events: list[Tokens] = []
        vocab_size = self._vocab_size
        for row, sequence, token, finite, extras in zip(
            batch.rows, sequences, result.tokens, result.finite, _extras(result), strict=False
        ):
            if sequence.epoch != row.epoch:
                continue
            # An id outside the vocabulary is an error like NaN; the radix tree could not store it.
            if not finite or (row.sample and not 0 <= token < vocab_size):
                failure = NO_TOKEN_ALLOWED if token == FORBIDDEN else NOT_FINITE
                self._lifecycle.end(sequence, failed(failure), events, poisoned=True)
                continue
            sequence.committed = row.start + row.n_tokens
            if row.tokens:
                if row.n_draft:
                    self._verified(sequence, row, (token, *extras.more_tokens), events)
                    continue
                self._chunk(sequence, extras.prompt_logprobs)
            if row.sample:
                self._token(sequence, token, extras.logprobs, events)
            elif not sequence.samples and sequence.prompt_computed:
                self._computed(sequence, row, extras.pooled, events)
        return events

    def _chunk(self, sequence: Sequence, scored: tuple[TokenLogprobs, ...] | None) -> None:
        lifecycle = self._lifecycle
        lifecycle.kv_cache.commit(sequence)
        if sequence.prompt_logprobs is not None:
            sequence.prompt_logprobs.extend(scored or ())
        if sequence.prompt_computed:
            _complete_scores(sequence)
            lifecycle.prompt_computed(sequence)
        if sequence.followers:
            lifecycle.wake(sequence, sequence.committed)

    def _verified(
        self, sequence: Sequence, row: Row, tokens: tuple[int, ...], events: list[Tokens]
    ) -> None:
        """Commit the tokens of a row with a draft: one per accepted draft token, and one more. Any
        of them may end the output.
        """
        sequence.in_flight -= 1
        sequence.scheduled = row.start
        for token in tokens:
            sequence.scheduled += 1
            sequence.in_flight += 1
            sequence.committed = sequence.scheduled
            if not 0 <= token < self._vocab_size:
                self._lifecycle.end(sequence, failed(NOT_FINITE), events, poisoned=True)
                return
            self._token(sequence, token, None, events)
            if sequence.epoch != row.epoch:
                return

    def _token(
        self,
        sequence: Sequence,
        token: int,
        logprobs: TokenLogprobs | None,
        events: list[Tokens],
    ) -> None:
        sequence.in_flight -= 1
        matcher = sequence.matcher
        if matcher is not None and not matcher.consume(token):
            self._lifecycle.end(sequence, failed(GRAMMAR), events)
            return
        tokens = sequence.tokens
        tokens.append(token)
        self.generated_tokens += 1
        length = len(tokens)
        if token in sequence.stop_ids and length >= sequence.min_length:
            finish = FinishInfo("stop", (token,), token)
        elif matcher is not None and matcher.is_finished:
            finish = FinishInfo("stop", (token,))
        elif length >= sequence.length_limit:
            finish = FinishInfo("length", (token,))
        elif logprobs is None and sequence.first_output is None:
            # Does not call `progress`, for speed: this line runs for every token of every request.
            cached, index = sequence.cached_tokens, sequence.index
            events.append(Tokens(sequence.request_id, (token,), None, None, cached, None, index))
            return
        else:
            events.append(progress(sequence, token, logprobs))
            return
        if logprobs is not None:
            finish = finish._replace(logprobs=(logprobs,))
        self._lifecycle.end(sequence, finish, events)

    def _computed(
        self, sequence: Sequence, row: Row, pooled: bytes | None, events: list[Tokens]
    ) -> None:
        """End an output that needs its prompt computed and nothing else."""
        finish = FinishInfo("length")
        if row.pool:
            finish = failed(NO_VECTOR) if pooled is None else FinishInfo("stop", pooled=pooled)
        self._lifecycle.end(sequence, finish, events)


def _complete_scores(sequence: Sequence) -> None:
    """Put the prompt's log-probabilities into the output's first message."""
    if sequence.prompt_logprobs is not None and sequence.first_output is not None:
        sequence.first_output = FirstOutputInfo(
            sequence.first_output.queued_s, tuple(sequence.prompt_logprobs)
        )
        sequence.prompt_logprobs = None
