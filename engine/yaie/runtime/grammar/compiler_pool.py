"""What the compiling threads share: the vocabulary, read at first use, and a probe for each."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from llguidance import LLTokenizer

from yaie.core.request import Grammar
from yaie.runtime.grammar import build
from yaie.runtime.grammar.matcher import CompiledGrammar
from yaie.runtime.grammar.probe import GrammarProbe
from yaie_api.errors import InvalidRequestError

MIN_COMPILED_BYTES: Final = 64 << 10
"""A matcher's tables where the C library does not tell."""


class CompilerPool:
    """Compiles one grammar at a time in each thread that calls."""

    def __init__(
        self, folder: Path, vocab_size: int, eos_token_ids: Sequence[int], time_limit_s: float
    ) -> None:
        self._folder = folder
        self._vocab_size = vocab_size
        self._eos_token_ids = tuple(eos_token_ids)
        self._time_limit_s = time_limit_s
        self._lock = threading.Lock()
        self._vocabulary: LLTokenizer | None = None
        self._local = threading.local()
        self._probes: list[GrammarProbe] = []

    def compile(self, grammar: Grammar) -> CompiledGrammar:
        """Try it in the thread's probe, then build it here.

        Raises:
            InvalidRequestError: it is refused.

        """
        probe = self._probe()
        probe.start()
        vocabulary = self._get_vocabulary()
        verdict = probe.ask(grammar)
        if verdict.problem is not None:
            raise InvalidRequestError(verdict.problem, param=grammar.param)
        matcher = build.build(vocabulary, grammar)
        return CompiledGrammar(
            matcher, max(verdict.size_bytes, MIN_COMPILED_BYTES, len(grammar.text))
        )

    def close(self) -> None:
        for probe in self._probes:
            probe.close()

    def _get_vocabulary(self) -> LLTokenizer:
        with self._lock:
            if self._vocabulary is None:
                self._vocabulary = build.load_vocabulary(
                    self._folder, self._vocab_size, self._eos_token_ids
                )
            return self._vocabulary

    def _probe(self) -> GrammarProbe:
        probe: GrammarProbe | None = getattr(self._local, "probe", None)
        if probe is None:
            probe = self._local.probe = GrammarProbe(
                self._folder, self._vocab_size, self._eos_token_ids, self._time_limit_s
            )
            with self._lock:
                self._probes.append(probe)
        return probe
