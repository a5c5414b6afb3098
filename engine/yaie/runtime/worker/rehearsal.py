"""Runs rare kinds of steps before the engine is ready, so that no request waits for a compilation.

Kernels are compiled when they first run. Captured graphs cover the usual steps; these batches cover
the rest: prompts longer than a graph, more prompts than a graph has rows, and sampling parameters
that graphs do not support. They use free slots and the scratch page, whose content is never used.
"""

from collections.abc import Iterator
from typing import Protocol, TypeVar

import numpy as np

from yaie.core.batch import Batch, Row, SlotInit, StepResult
from yaie.core.request import Grammar, SamplingParams
from yaie.runtime.grammar.pending import TokenMasks

PROMPTS = 20
"""Number of prompts in a step; more than a mixed graph has rows."""
DRAWS = (
    SamplingParams(temperature=0.0),
    SamplingParams(seed=1),
    SamplingParams(seed=1, top_k=5, top_p=0.9, min_p=0.01),
)
DEMANDING = SamplingParams(
    seed=1,
    repetition_penalty=1.1,
    presence_penalty=0.1,
    frequency_penalty=0.1,
    logit_bias=((1, 1.0),),
    bad_words_ids=((1, 2),),
    allowed_token_ids=tuple(range(8)),
    min_tokens=4,
    logprobs=5,
    prompt_logprobs=2,
    grammar=Grammar("regex", "a*"),
)

HandleT = TypeVar("HandleT")


class RehearsalRunner(Protocol[HandleT]):
    """The methods of the runner that a rehearsal uses."""

    def launch(self, batch: Batch) -> HandleT: ...

    def sample(self, handle: HandleT, masks: TokenMasks | None = None) -> None: ...

    def collect(self, handle: HandleT) -> StepResult: ...


def rehearse(
    runner: RehearsalRunner[HandleT],
    *,
    max_num_seqs: int,
    longest: int,
    step_tokens: int,
    page_size: int,
    vocab_size: int,
) -> None:
    """Run every batch once.

    Args:
        runner: an idle runner.
        max_num_seqs: number of its slots.
        longest: longest sequence in tokens; the model has no positions beyond it.
        step_tokens: maximum tokens of a step.
        page_size: tokens in a page.
        vocab_size: token ids are below it.

    """
    words = np.full((1, -(-vocab_size // 32)), -1, dtype=np.int32)
    for batch in _batches(max_num_seqs, min(longest, step_tokens), page_size):
        handle = runner.launch(batch)
        masked = batch.inits[-1].sampling.grammar is not None and batch.rows[-1].sample
        runner.sample(handle, TokenMasks((len(batch.rows) - 1,), words) if masked else None)
        runner.collect(handle)


def _batches(max_num_seqs: int, longest: int, page_size: int) -> Iterator[Batch]:
    for sampling in DRAWS:
        yield _prompts(sampling, [min(7, longest)] * min(PROMPTS, max_num_seqs), page_size)
    yield _prompts(DRAWS[0], [longest], page_size)
    yield _prompts(DEMANDING, [min(9, longest)], page_size)


def _prompts(sampling: SamplingParams, lengths: list[int], page_size: int) -> Batch:
    inits = tuple(
        SlotInit(
            slot,
            slot,
            sampling,
            1,
            ((0,) * (-(-length // page_size)),),
            stop_ids=(1,),
            prompt_tokens=length,
            history=((3,) * length, ()),
        )
        for slot, length in enumerate(lengths)
    )
    rows = tuple(
        Row(
            slot,
            slot,
            0,
            0,
            length,
            (3,) * length,
            True,
            (3,) * (length - 1) if sampling.prompt_logprobs is not None else (),
        )
        for slot, length in enumerate(lengths)
    )
    return Batch(0, (), inits, (), (), rows)
