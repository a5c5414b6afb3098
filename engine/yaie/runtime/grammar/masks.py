"""Fills token masks from matchers, into arrays that are reused."""

from collections.abc import Sequence
from typing import Final

import llguidance.numpy
import numpy as np
from llguidance import LLExecutor, LLMatcher
from numpy.typing import NDArray

from yaie.core.matcher import Matcher
from yaie.runtime.grammar.matcher import TokenMatcher
from yaie.runtime.grammar.pending import TokenMasks
from yaie.runtime.host import usable_cores

MIN_PARALLEL_ROWS: Final = 16
"""Fewer rows are filled faster one by one (8 us each) than handed to other threads."""
MIN_PARALLEL_CORES: Final = 4
"""With fewer cores, threads wait for each other: on two busy cores 16 rows took 12 ms instead of
0.5.
"""
MAX_MASK_THREADS: Final = 8


class TokenBitmasks:
    """Two arrays, used in turn; each grows to the maximum number of rows so far."""

    def __init__(self, vocab_size: int) -> None:
        self._n_words = -(-vocab_size // 32)
        self._arrays = [np.empty((0, self._n_words), np.int32) for _ in range(2)]
        self._cores = usable_cores()
        self._executor: LLExecutor | None = None

    def fill(self, pairs: Sequence[tuple[int, Matcher]]) -> TokenMasks:
        words = self._array(len(pairs))
        native = [_native(matcher) for _, matcher in pairs]
        executor = self._threads() if len(native) >= MIN_PARALLEL_ROWS else None
        if executor is None:
            for index, matcher in enumerate(native):
                llguidance.numpy.fill_next_token_bitmask(matcher, words, index)
        else:
            rows = [(matcher, index) for index, matcher in enumerate(native)]
            llguidance.numpy.fill_next_token_bitmask_par(executor, rows, words)
        return TokenMasks(tuple(row for row, _ in pairs), words)

    def _threads(self) -> LLExecutor | None:
        if self._executor is None and self._cores >= MIN_PARALLEL_CORES:
            self._executor = LLExecutor(min(MAX_MASK_THREADS, self._cores - 2))
        return self._executor

    def _array(self, n_rows: int) -> NDArray[np.int32]:
        self._arrays.reverse()
        if len(self._arrays[0]) < n_rows:
            self._arrays[0] = np.empty((n_rows, self._n_words), np.int32)
        return self._arrays[0][:n_rows]


def _native(matcher: Matcher) -> LLMatcher:
    if not isinstance(matcher, TokenMatcher):
        raise TypeError("the matcher was made elsewhere")
    return matcher.matcher
