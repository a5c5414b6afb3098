"""What the compiling threads use: one vocabulary, read at first use, and one probe per thread."""

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
"""Smallest size that is counted for a matcher; some C libraries cannot measure it."""


class CompilerPool:
    """Compiles grammars, one at a time in each thread that calls."""

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
        """Build a grammar in the thread's probe process first, then in this process.

        Raises:
            InvalidRequestError: the grammar is refused.
            EngineError: the probe process does not start.

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
