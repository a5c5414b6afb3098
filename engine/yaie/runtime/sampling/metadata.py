"""Determines, before a step is launched, which of its rows need more than plain sampling.

If all rows are plain, the step samples inside its CUDA graph; otherwise it ends with the logits.
"""

from collections.abc import Iterable
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from yaie.core.batch import SlotInit
from yaie.core.request import SamplingParams
from yaie.runtime.tensors.inputs import Ints
from yaie_kernels import logit_flags

NO_LOGPROBS = -2
How = Literal["greedy", "plain", "filtered"]
"""greedy: all rows take their most likely token. plain: some rows sample. filtered: some rows
sample with top-k or top-p.
"""


class SamplingMetadata(NamedTuple):
    """How the S draws of a step are made.

    Attributes:
        slots: [S] slot of each draw.
        how: the most general kind of sampling that a draw needs.
        wanted: [S] bits of `yaie_kernels.logit_flags`, without the grammar's, whose masks come
            later.
        logprobs: [S] number of most likely tokens to report; NO_LOGPROBS: report nothing.
        masked: whether a request has a grammar, so that masks may follow.

    """

    slots: Ints
    how: How
    wanted: Ints
    logprobs: Ints
    masked: bool

    @property
    def plain(self) -> bool:
        """Whether sampling needs only the logits and the slots' scalar parameters."""
        nothing = not self.wanted.any() and not self.masked
        return nothing and bool((self.logprobs == NO_LOGPROBS).all())


class SlotSampling:
    """The sampling parameters of the sequence in each slot, on the host.

    Args:
        rows: number of slots.
        vocab_size: number of log-probabilities if all are requested.

    """

    def __init__(self, rows: int, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._drawn = np.zeros(rows, dtype=np.bool_)
        self._filtered = np.zeros(rows, dtype=np.bool_)
        self._wanted = np.zeros(rows, dtype=np.int32)
        self._early_until = np.zeros(rows, dtype=np.int32)
        self._logprobs = np.full(rows, NO_LOGPROBS, dtype=np.int32)
        self._prompt_logprobs = np.zeros(rows, dtype=np.int32)
        self._masked = np.zeros(rows, dtype=np.bool_)

    def start(self, inits: Iterable[SlotInit]) -> None:
        """Store the parameters of sequences that start in slots."""
        for init in inits:
            slot, sampling = init.slot, init.sampling
            self._drawn[slot] = not sampling.greedy
            self._filtered[slot] = sampling.top_k > 0 or sampling.top_p < 1.0
            self._wanted[slot] = lasting(sampling)
            forbids = bool(sampling.min_tokens and init.stop_ids)
            self._early_until[slot] = init.prompt_tokens + sampling.min_tokens if forbids else 0
            self._logprobs[slot] = self._count(sampling.logprobs)
            self._prompt_logprobs[slot] = self._count(sampling.prompt_logprobs)
            self._masked[slot] = sampling.grammar is not None

    def plan(self, slots: Ints, positions: Ints) -> SamplingMetadata:
        """The metadata of draws in `slots` [S], of tokens at `positions` [S]."""
        early = positions < self._early_until[slots]
        return SamplingMetadata(
            slots=slots,
            how=self._how(slots),
            wanted=self._wanted[slots]
            | np.where(early, logit_flags.MIN_TOKENS, 0).astype(np.int32),
            logprobs=self._logprobs[slots],
            masked=bool(self._masked[slots].any()),
        )

    def _how(self, slots: Ints) -> How:
        drawn = self._drawn[slots]
        if not drawn.any():
            return "greedy"
        return "filtered" if (drawn & self._filtered[slots]).any() else "plain"

    def prompt_logprobs(self, slot: int) -> int:
        """Number of most likely tokens to report at each position of the prompt in `slot`."""
        return max(0, int(self._prompt_logprobs[slot]))

    def _count(self, logprobs: int | None) -> int:
        if logprobs is None:
            return NO_LOGPROBS
        return self._vocab_size if logprobs < 0 else min(logprobs, self._vocab_size)


def lasting(sampling: SamplingParams) -> int:
    """Flags (`logit_flags`) that hold for every token of an output."""
    wanted = {
        logit_flags.ALLOWED: sampling.allowed_token_ids is not None,
        logit_flags.PENALTIES: sampling.penalized,
        logit_flags.BIASES: bool(sampling.logit_bias),
        logit_flags.BAD_WORDS: bool(sampling.bad_words_ids),
    }
    return sum(bit for bit, asked in wanted.items() if asked)


def mask_of(token_ids: Iterable[int], vocab_size: int, *, allowed: bool) -> NDArray[np.int32]:
    """Words of bits, [ceil(vocab / 32)] int32, that allow only these ids, or all ids but these.

    Ids outside the vocabulary are ignored: they cannot be sampled.
    """
    ids = np.fromiter((t for t in token_ids if t < vocab_size), dtype=np.int64)
    bits = np.full(-(-vocab_size // 32) * 32, not allowed)
    bits[ids] = allowed
    return np.packbits(bits, bitorder="little").view(np.int32)
