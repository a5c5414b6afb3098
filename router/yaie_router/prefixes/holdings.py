"""Which engines of a model have which prefix keys: by what they publish, and what was sent there.

    key ──▶ bits of the engines that have it

A prefix that was just sent counts as being there, long before its engine says so: requests of one
document that come at the same time must not go everywhere. These guesses live in two generations,
the older of which is dropped every `EXPECTED_S` seconds, and end when the engine evicts the key.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from yaie_api.prefix import Load, Outcome, PrefixIndex, PrefixUpdate

EXPECTED_S: Final = 15.0
"""A guess is kept for once to twice this long: its prompt must be computed by then."""
MOST_EXPECTED: Final = 65_536
"""Guesses in one generation; it ends early when it has so many."""
MOST_KEYS: Final = 1 << 18
"""Of one engine: about 32 million tokens of text. An engine that says more is not read."""


class TooManyKeysError(Exception):
    """An engine publishes more keys than a router will keep."""


class Holdings:
    """The keys of all engines of one model. `clock`: in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._bits: dict[str, int] = {}
        self._indexes: dict[str, PrefixIndex] = {}
        self._published: dict[int, int] = {}
        self._expected: tuple[dict[int, int], dict[int, int]] = ({}, {})
        self._turned_s = clock()

    @property
    def num_keys(self) -> int:
        """Published keys, each counted once."""
        return len(self._published)

    def load(self, engine: str) -> Load | None:
        """What the engine last said of its load; None: it has said nothing yet."""
        index = self._indexes.get(engine)
        return index.load if index is not None and index.epoch else None

    def take(self, engine: str, update: PrefixUpdate) -> Outcome:
        """Take a line of an engine's stream.

        Raises:
            TooManyKeysError: it says more than a router will keep. All that it said is forgotten.

        """
        bit = self._bit(engine)
        index = self._indexes.setdefault(engine, PrefixIndex())
        before = index.tokens
        outcome = index.apply(update)
        if len(index.tokens) > MOST_KEYS or update.parts * len(update.added) > 2 * MOST_KEYS:
            self.forget(engine)
            raise TooManyKeysError
        if outcome is Outcome.APPLIED and update.parts:
            self._remove(before.keys() - index.tokens.keys(), bit)
            self._add(index.tokens.keys() - before.keys(), bit)
        elif outcome is Outcome.APPLIED:
            self._remove(update.removed, bit)
            self._add((key for key, _ in update.added), bit)
        return outcome

    def lost(self, engine: str) -> None:
        """Note that an engine's stream has ended. Its keys are kept as guesses, its load is not."""
        if (index := self._indexes.get(engine)) is not None:
            index.load = Load()

    def expect(self, engine: str, keys: Iterable[int]) -> None:
        """Note that a prompt with these keys was sent to the engine."""
        now_s, (young, old) = self._clock(), self._expected
        if now_s - self._turned_s > EXPECTED_S or len(young) > MOST_EXPECTED:
            young, old = {}, young
            self._expected, self._turned_s = (young, old), now_s
        bit = self._bit(engine)
        for key in keys:
            young[key] = young.get(key, 0) | bit

    def depths(self, keys: Sequence[int], engines: Iterable[str]) -> dict[str, int]:
        """The index of the deepest of a request's keys that each engine has. Those that have none
        are left out.
        """
        names = {self._bits[name]: name for name in engines if name in self._bits}
        missing, found = sum(names), dict[str, int]()
        published, (young, old) = self._published, self._expected
        for index in range(len(keys) - 1, -1, -1):
            key = keys[index]
            bits = (published.get(key, 0) | young.get(key, 0) | old.get(key, 0)) & missing
            if not bits:
                continue
            missing ^= bits
            while bits:
                lowest = bits & -bits
                found[names[lowest]] = index
                bits ^= lowest
            if not missing:
                break
        return found

    def retain(self, engines: Iterable[str]) -> None:
        """Forget all other engines."""
        for engine in self._bits.keys() - set(engines):
            self.forget(engine)

    def forget(self, engine: str) -> None:
        """Forget what an engine has: it is gone."""
        bit = self._bits.pop(engine, 0)
        index = self._indexes.pop(engine, None)
        if index is not None:
            _clear(self._published, index.tokens, bit)
        for guesses in self._expected:
            _clear(guesses, list(guesses), bit)

    def _bit(self, engine: str) -> int:
        bit = self._bits.get(engine)
        if bit is None:
            taken, bit = sum(self._bits.values()), 1
            while taken & bit:
                bit <<= 1
            self._bits[engine] = bit
        return bit

    def _add(self, keys: Iterable[int], bit: int) -> None:
        published = self._published
        for key in keys:
            published[key] = published.get(key, 0) | bit

    def _remove(self, keys: Iterable[int], bit: int) -> None:
        keys = tuple(keys)
        _clear(self._published, keys, bit)
        for guesses in self._expected:
            _clear(guesses, keys, bit)


def _clear(table: dict[int, int], keys: Iterable[int], bit: int) -> None:
    for key in keys:
        bits = table.get(key, 0)
        if bits & bit:
            if bits == bit:
                del table[key]
            else:
                table[key] = bits ^ bit
