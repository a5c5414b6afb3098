"""Caches compiled grammars, bounded by their bytes, and refused grammars, for a limited time."""

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import msgspec

from yaie.core.request import Grammar
from yaie.runtime.grammar.matcher import CompiledGrammar

MAX_REMEMBERED_REFUSALS: Final = 4096
REFUSAL_S: Final = 60.0
"""Seconds that a refusal is kept: on a busy machine, a grammar may have timed out by chance."""

Key = bytes


def key_of(grammar: Grammar) -> Key:
    """SHA-256 of a grammar without its `param`, which does not change the result."""
    anonymous = msgspec.structs.replace(grammar, param="")
    return hashlib.sha256(msgspec.msgpack.encode(anonymous)).digest()


class GrammarCache:
    """Compiled grammars with at most `limit_bytes` together; the least recently used one is
    dropped.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._entries: OrderedDict[Key, CompiledGrammar] = OrderedDict()
        self._size_bytes = 0

    def get(self, key: Key) -> CompiledGrammar | None:
        if (found := self._entries.get(key)) is not None:
            self._entries.move_to_end(key)
        return found

    def drop(self, key: Key) -> None:
        self._size_bytes -= self._entries.pop(key).size_bytes

    def put(self, key: Key, compiled: CompiledGrammar) -> None:
        self._entries[key] = compiled
        self._size_bytes += compiled.size_bytes
        while self._size_bytes > self._limit_bytes:
            _, forgotten = self._entries.popitem(last=False)
            self._size_bytes -= forgotten.size_bytes


class RefusedGrammars:
    """Reasons of recent refusals, so that the same grammar is not compiled again."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._reasons: OrderedDict[Key, tuple[str, float]] = OrderedDict()

    def get(self, key: Key) -> str | None:
        reason, until_s = self._reasons.get(key, (None, 0.0))
        if reason is not None and until_s <= self._clock():
            del self._reasons[key]
            return None
        return reason

    def put(self, key: Key, reason: str) -> None:
        self._reasons[key] = (reason, self._clock() + REFUSAL_S)
        if len(self._reasons) > MAX_REMEMBERED_REFUSALS:
            self._reasons.popitem(last=False)
