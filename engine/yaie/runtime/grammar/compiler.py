"""The grammar backend: compiles the grammars of requests beside the loop and fills token masks.

The loop submits a request that has a grammar, and takes it back with a matcher or with the error
that refuses it. Other threads only compile; the loop's thread owns every list here.
"""

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final

from yaie.core.matcher import Matcher
from yaie.core.messages import Generate
from yaie.core.request import Grammar
from yaie.runtime.grammar.cache import GrammarCache, Key, RefusedGrammars, key_of
from yaie.runtime.grammar.compiler_pool import CompilerPool
from yaie.runtime.grammar.masks import TokenBitmasks
from yaie.runtime.grammar.matcher import CompiledGrammar, TokenMatcher
from yaie.runtime.grammar.pending import TokenMasks
from yaie_api.errors import EngineError, InvalidRequestError, OverloadedError, YaieError

MAX_PENDING: Final = 256
"""Requests that may wait for a compilation."""
TIME_LIMIT_S: Final = 2.0
"""A grammar that takes longer is refused, and the probe process that tried it is killed."""
CACHE_BYTES: Final = 256 << 20
"""Maximum size of all cached compiled grammars."""

log = logging.getLogger(__name__)


class GrammarCompiler:
    """Compiles grammars in `max_workers` threads and caches the results."""

    def __init__(
        self,
        folder: Path,
        vocab_size: int,
        eos_token_ids: Sequence[int],
        *,
        max_workers: int = 2,
        time_limit_s: float = TIME_LIMIT_S,
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        self._workshop = CompilerPool(folder, vocab_size, eos_token_ids, time_limit_s)
        self._pool = ThreadPoolExecutor(max_workers, thread_name_prefix="grammar")
        self._finished: SimpleQueue[tuple[Key, CompiledGrammar | YaieError]] = SimpleQueue()
        self._cache = GrammarCache(cache_bytes)
        self._refused = RefusedGrammars()
        self._waiting: dict[Key, list[Generate]] = {}
        self._n_waiting = 0
        self._ready: list[tuple[Generate, Matcher | YaieError]] = []
        self._masks = TokenBitmasks(vocab_size)

    @property
    def pending(self) -> int:
        """Number of requests that were submitted and not yet taken."""
        return self._n_waiting + len(self._ready)

    def submit(self, request: Generate) -> None:
        """Submit a request whose grammar is to be compiled; `take` returns the request.

        Raises:
            ValueError: the request has no grammar.

        """
        grammar = request.sampling.grammar
        if grammar is None:
            raise ValueError("the request has no grammar")
        key = key_of(grammar)
        if (reason := self._refused.get(key)) is not None:
            self._ready.append((request, InvalidRequestError(reason, param=grammar.param)))
        elif (matcher := self._cached(key)) is not None:
            self._ready.append((request, matcher))
        elif self._n_waiting >= MAX_PENDING:
            busy = "Too many requests with new grammars are waiting."
            self._ready.append((request, OverloadedError(busy, retry_after_s=1.0)))
        else:
            self._n_waiting += 1
            self._wait_for(key, grammar, request)

    def take(self) -> list[tuple[Generate, Matcher | YaieError]]:
        """Return the requests whose grammar was compiled or refused since the last call."""
        while self._n_waiting:
            try:
                key, outcome = self._finished.get_nowait()
            except Empty:
                break
            self._settle(key, outcome)
        ready, self._ready = self._ready, []
        return ready

    def masks(self, pairs: Sequence[tuple[int, Matcher]]) -> TokenMasks | None:
        """Token masks for (row number, matcher) pairs. The words stay valid until the call after
        the next one, because a copy to the device may still read them while the next step is built.
        """
        return self._masks.fill(pairs) if pairs else None

    def close(self) -> None:
        """Stop the threads and their processes. Requests that still wait are not answered."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._workshop.close()

    def _cached(self, key: Key) -> TokenMatcher | None:
        known = self._cache.get(key)
        if known is not None and known.exhausted:
            self._cache.drop(key)
            return None
        return None if known is None else known.begin()

    def _wait_for(self, key: Key, grammar: Grammar, request: Generate) -> None:
        waiting = self._waiting.setdefault(key, [])
        waiting.append(request)
        if len(waiting) == 1:
            self._pool.submit(self._compile, key, grammar)

    def _compile(self, key: Key, grammar: Grammar) -> None:
        """Compile a grammar, in a thread of the pool."""
        outcome: CompiledGrammar | YaieError
        try:
            outcome = self._workshop.compile(grammar)
        except YaieError as error:
            outcome = error
        except BaseException:
            log.exception("grammar failed")
            outcome = EngineError("The output's form could not be prepared.")
        self._finished.put((key, outcome))

    def _settle(self, key: Key, outcome: CompiledGrammar | YaieError) -> None:
        requests = self._waiting.pop(key)
        self._n_waiting -= len(requests)
        if isinstance(outcome, CompiledGrammar):
            self._cache.put(key, outcome)
            self._ready.extend((request, outcome.begin()) for request in requests)
            return
        self._ready.extend((request, _addressed(outcome, request)) for request in requests)
        if isinstance(outcome, InvalidRequestError):
            self._refused.put(key, outcome.message)


def _addressed(error: YaieError, request: Generate) -> YaieError:
    """The error of a shared compilation, with the field of this request that holds the grammar."""
    grammar = request.sampling.grammar
    if grammar is None or not isinstance(error, InvalidRequestError):
        return error
    return InvalidRequestError(error.message, param=grammar.param)
