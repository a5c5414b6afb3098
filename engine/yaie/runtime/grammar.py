"""Grammars of requests: compiled beside the loop, followed token by token, turned into masks.

The loop submits a request that has a grammar and takes it back with a matcher, or with the error
that refuses it. Threads compile; every list here belongs to the loop's thread.
"""

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final

import llguidance.numpy
import msgspec
import numpy as np
from llguidance import LLExecutor, LLMatcher, LLTokenizer
from numpy.typing import NDArray

from yaie.core.matcher import Matcher
from yaie.core.messages import Generate
from yaie.core.request import Grammar
from yaie.runtime import grammar_build
from yaie.runtime.compiling import TokenMasks
from yaie.runtime.grammar_probe import Probe
from yaie.runtime.host import usable_cores
from yaie_api.errors import EngineError, InvalidRequestError, OverloadedError, YaieError

MAX_PENDING: Final = 256
"""Requests that may wait for a compilation."""
TIME_LIMIT_S: Final = 2.0
"""A grammar that takes longer is refused, and the process that tried it killed."""
CACHE_BYTES: Final = 256 << 20
"""What compiled grammars may hold."""
MIN_COMPILED_BYTES: Final = 64 << 10
"""A matcher's tables where the C library does not tell."""
MIN_PARALLEL_ROWS: Final = 16
"""Fewer rows are filled faster one by one (8 us each) than handed to other threads."""
MIN_PARALLEL_CORES: Final = 4
"""With fewer, threads wait for each other: on two busy cores 16 rows took 12 ms instead of 0.5."""
MAX_MASK_THREADS: Final = 8

MAX_REMEMBERED_REFUSALS: Final = 4096
REFUSAL_S: Final = 60.0
"""How long a refusal is remembered: on a busy machine a grammar may have been too slow by chance."""

Key = bytes


@dataclass(slots=True)
class Compiled:
    """A matcher at its grammar's beginning, never fed itself. `size_bytes`: what it holds.

    Copies have one lexer in common: what one of them has explored is fast for all, and a limit that
    one runs into ends them all. Such a grammar is `exhausted` and has to be compiled anew.
    """

    matcher: LLMatcher
    size_bytes: int
    exhausted: bool = False

    def begin(self) -> "TokenMatcher":
        """A matcher for one output."""
        return TokenMatcher(self, self.matcher.deep_copy())


class TokenMatcher:
    """Follows one output through its grammar."""

    __slots__ = ("_grammar", "matcher")

    def __init__(self, grammar: Compiled, matcher: LLMatcher) -> None:
        self._grammar = grammar
        self.matcher = matcher

    def consume(self, token_id: int) -> bool:
        """Take a committed token; False when the grammar does not allow it here.

        An end-of-sequence token is allowed where the grammar may end. A matcher that ran into a
        limit takes nothing more.
        """
        consumed: bool = self.matcher.try_consume_tokens([token_id]) == 1
        if self.matcher.is_error():
            self._grammar.exhausted = True
            return False
        return consumed

    @property
    def is_finished(self) -> bool:
        """Nothing can follow: the output is complete."""
        return self.matcher.is_stopped() and not self.matcher.is_error()

    def fork(self) -> "TokenMatcher":
        """A matcher in the same state, for another output."""
        return TokenMatcher(self._grammar, self.matcher.deep_copy())


class GrammarCompiler:
    """Compiles grammars in a few threads and remembers them by their text."""

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
        self._workshop = _Workshop(folder, vocab_size, eos_token_ids, time_limit_s)
        self._pool = ThreadPoolExecutor(max_workers, thread_name_prefix="grammar")
        self._finished: SimpleQueue[tuple[Key, Compiled | YaieError]] = SimpleQueue()
        self._cache = _Cache(cache_bytes)
        self._refused: OrderedDict[Key, tuple[str, float]] = OrderedDict()
        self._waiting: dict[Key, list[Generate]] = {}
        self._n_waiting = 0
        self._ready: list[tuple[Generate, Matcher | YaieError]] = []
        self._masks = _Masks(vocab_size)

    @property
    def pending(self) -> int:
        """Requests submitted and not yet taken."""
        return self._n_waiting + len(self._ready)

    def submit(self, request: Generate) -> None:
        """Give a request to compile; `take` returns it."""
        grammar = request.sampling.grammar
        if grammar is None:
            raise ValueError("the request has no grammar")
        key = _key(grammar)
        if (reason := self._refusal(key)) is not None:
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
        """Return requests whose grammar is compiled, or refused, since the last call."""
        while self._n_waiting:
            try:
                key, outcome = self._finished.get_nowait()
            except Empty:
                break
            self._settle(key, outcome)
        ready, self._ready = self._ready, []
        return ready

    def masks(self, pairs: Sequence[tuple[int, Matcher]]) -> TokenMasks | None:
        """Tokens allowed next, for (row number, matcher) pairs. The words are valid until the
        next but one call: a copy to the device may still read them while the next step is built.
        """
        return self._masks.fill(pairs) if pairs else None

    def close(self) -> None:
        """End the threads and their processes; whoever waits is not answered."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._workshop.close()

    def _cached(self, key: Key) -> TokenMatcher | None:
        known = self._cache.get(key)
        if known is not None and known.exhausted:
            self._cache.drop(key)
            return None
        return None if known is None else known.begin()

    def _refusal(self, key: Key) -> str | None:
        reason, until_s = self._refused.get(key, (None, 0.0))
        if reason is not None and until_s <= time.monotonic():
            del self._refused[key]
            return None
        return reason

    def _wait_for(self, key: Key, grammar: Grammar, request: Generate) -> None:
        waiting = self._waiting.setdefault(key, [])
        waiting.append(request)
        if len(waiting) == 1:
            self._pool.submit(self._compile, key, grammar)

    def _compile(self, key: Key, grammar: Grammar) -> None:
        """In a thread of the pool."""
        outcome: Compiled | YaieError
        try:
            outcome = self._workshop.compile(grammar)
        except YaieError as error:
            outcome = error
        except BaseException as error:  # noqa: BLE001 - a thread's error, or panic, is its request's
            outcome = EngineError(f"The output's form failed ({type(error).__name__}).")
        self._finished.put((key, outcome))

    def _settle(self, key: Key, outcome: Compiled | YaieError) -> None:
        requests = self._waiting.pop(key)
        self._n_waiting -= len(requests)
        if isinstance(outcome, Compiled):
            self._cache.put(key, outcome)
            self._ready.extend((request, outcome.begin()) for request in requests)
            return
        self._ready.extend((request, _addressed(outcome, request)) for request in requests)
        if isinstance(outcome, InvalidRequestError):
            self._refused[key] = (outcome.message, time.monotonic() + REFUSAL_S)
            if len(self._refused) > MAX_REMEMBERED_REFUSALS:
                self._refused.popitem(last=False)


def _key(grammar: Grammar) -> Key:
    """All that makes a grammar, in few bytes."""
    anonymous = msgspec.structs.replace(grammar, param="")
    return hashlib.sha256(msgspec.msgpack.encode(anonymous)).digest()


def _addressed(error: YaieError, request: Generate) -> YaieError:
    """The error of a shared compilation, with the field that this request asked in."""
    grammar = request.sampling.grammar
    if grammar is None or not isinstance(error, InvalidRequestError):
        return error
    return InvalidRequestError(error.message, param=grammar.param)


class _Workshop:
    """What the compiling threads share: the vocabulary, read at first use, and a probe for each."""

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
        self._probes: list[Probe] = []

    def compile(self, grammar: Grammar) -> Compiled:
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
        matcher = grammar_build.build(vocabulary, grammar)
        matcher.compute_bitmask()  # the first mask of every output is ready
        if matcher.is_error():
            raise grammar_build.refusal(grammar, "it is too complex")
        return Compiled(matcher, max(verdict.size_bytes, MIN_COMPILED_BYTES, len(grammar.text)))

    def close(self) -> None:
        for probe in self._probes:
            probe.close()

    def _get_vocabulary(self) -> LLTokenizer:
        with self._lock:
            if self._vocabulary is None:
                self._vocabulary = grammar_build.load_vocabulary(
                    self._folder, self._vocab_size, self._eos_token_ids
                )
            return self._vocabulary

    def _probe(self) -> Probe:
        probe: Probe | None = getattr(self._local, "probe", None)
        if probe is None:
            probe = self._local.probe = Probe(
                self._folder, self._vocab_size, self._eos_token_ids, self._time_limit_s
            )
            with self._lock:
                self._probes.append(probe)
        return probe


class _Cache:
    """Compiled grammars, the least recently used forgotten first; bounded by their bytes."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._entries: OrderedDict[Key, Compiled] = OrderedDict()
        self._size_bytes = 0

    def get(self, key: Key) -> Compiled | None:
        if (found := self._entries.get(key)) is not None:
            self._entries.move_to_end(key)
        return found

    def drop(self, key: Key) -> None:
        self._size_bytes -= self._entries.pop(key).size_bytes

    def put(self, key: Key, compiled: Compiled) -> None:
        self._entries[key] = compiled
        self._size_bytes += compiled.size_bytes
        while self._size_bytes > self._limit_bytes:
            _, forgotten = self._entries.popitem(last=False)
            self._size_bytes -= forgotten.size_bytes


class _Masks:
    """Two arrays, used in turn, that grow to the most rows ever asked for."""

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
