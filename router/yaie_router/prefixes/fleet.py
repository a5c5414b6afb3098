"""Places the requests of one model: what its engines have, what waits there, who got how much."""

from collections.abc import Callable, Collection, Iterable
from typing import Final

import msgspec

from yaie_api.prefix import Outcome, PrefixKeys, PrefixUpdate
from yaie_router.prefixes.branches import Branches
from yaie_router.prefixes.holdings import Holdings
from yaie_router.prefixes.policy import NEAR_TOKENS, Option, Placement, place
from yaie_router.prefixes.queues import Queues, Sent
from yaie_router.prefixes.shares import Shares

BYTES_PER_TOKEN: Final = 4.0
"""Of a request, until an engine has counted the tokens of one."""
_SMOOTHING: Final = 0.05


class Choice(msgspec.Struct, frozen=True):
    """Where a request goes. `matched`: tokens that the engine has, of `tokens` of the prompt."""

    placement: Placement
    tokens: int
    matched: int
    key: int
    keys: tuple[int, ...]
    deepest: int | None
    is_free: bool
    options: tuple[Option, ...]

    @property
    def engine(self) -> str:
        return self.placement.option.name

    def told(self, engines: Iterable[str]) -> dict[str, str]:
        """All that the choice was made from, for `policy.place` to make it again: the options are
        missing:queued:in-flight:recent of each of the `engines`, in this order; "-": it was not to
        be chosen (ejected, busy or tried before).
        """
        found = {option.name: option for option in self.options}
        return {
            "tokens": str(self.tokens),
            "matched": str(self.matched),
            "key": f"{self.key:016x}",
            "free": str(int(self.is_free)),
            "options": ",".join(_told(found.get(name)) for name in engines),
        }


def _told(option: Option | None) -> str:
    if option is None:
        return "-"
    return f"{option.missing}:{option.queued}:{option.in_flight}:{option.recent:.2f}"


class Fleet:
    """The engines of one model. `clock`: in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.holdings = Holdings(clock)
        self.queues = Queues(clock)
        self._branches = Branches()
        self._shares = Shares()
        self._bytes_per_token = BYTES_PER_TOKEN
        self._silent: set[str] = set()
        self._heard: set[str] = set()

    def silent(self, engine: str) -> None:
        """Note that the engine publishes no keys."""
        self._silent.add(engine)

    def speaks(self, engines: Collection[str]) -> bool:
        """Whether some of these engines publish their keys, and none is known not to."""
        return not self._heard.isdisjoint(engines) and self._silent.isdisjoint(engines)

    def take(self, engine: str, update: PrefixUpdate) -> Outcome:
        """Take a line of an engine's stream.

        Raises:
            TooManyKeysError: it has more keys than a router will keep.

        """
        outcome = self.holdings.take(engine, update)
        if outcome is not Outcome.STALE:
            self.queues.reported(engine)
            self._shares.reported(engine, update.load.requests)
        if outcome is Outcome.APPLIED:
            self._heard.add(engine)
            self._silent.discard(engine)
        return outcome

    def choose(self, keys: PrefixKeys, engines: Collection[str]) -> Choice:
        """Choose one of these engines, of which there is one at least. Changes nothing."""
        depths = self.holdings.depths(keys.keys, engines)
        recent = self._shares.of(engines)
        tokens = self._tokens(keys.total_bytes)
        options = [
            Option(
                name,
                tokens - self._tokens(keys.ends[depths[name]]) if name in depths else tokens,
                self.queues.tokens(name, self.holdings.load(name)),
                self.queues.in_flight(name),
                round(recent[name] + self.queues.unreported(name), 2),
            )
            for name in engines
        ]
        index = max(depths.values(), default=-1)
        is_one_conversation = keys.is_beginning and index >= keys.home
        deepest = keys.keys[index] if depths and not is_one_conversation else None
        is_free = not is_one_conversation and (
            _is_shared(keys, index) or (deepest is not None and self._branches.are_at(deepest))
        )
        key = self._next_key(keys, tokens, options) if is_free else keys.home_key
        placement = place(options, key=key, is_free=is_free)
        matched = tokens - placement.option.missing
        return Choice(
            placement,
            tokens,
            matched,
            key,
            keys.keys,
            deepest,
            is_free,
            tuple(options),
        )

    def send(self, choice: Choice) -> Sent:
        """Note that a choice is followed."""
        option = choice.placement.option
        if choice.deepest is not None:
            self._branches.visit(choice.deepest)
        self.holdings.expect(option.name, choice.keys)
        return self.queues.sent(option.name, choice.tokens, option.missing)

    def learn(self, keys: PrefixKeys, tokens: int) -> None:
        """Take in how many tokens an engine counted in a prompt."""
        if tokens > 0:
            found = keys.total_bytes / tokens
            self._bytes_per_token += _SMOOTHING * (found - self._bytes_per_token)

    def retain(self, engines: Iterable[str]) -> None:
        """Forget all other engines."""
        names = set(engines)
        self.holdings.retain(names)
        self.queues.retain(names)
        self._shares.retain(names)
        self._silent &= names
        self._heard &= names

    def _next_key(self, keys: PrefixKeys, tokens: int, options: list[Option]) -> int:
        """The first key beyond what some engine has. A few tokens more are not told from none: what
        is shorter than a page is known only to the router that sent it.
        """
        matched = tokens - min(one.missing for one in options)
        for key, end in zip(keys.keys, keys.ends, strict=True):
            if self._tokens(end) >= matched + NEAR_TOKENS:
                return key
        return keys.keys[-1]

    def _tokens(self, size: int) -> int:
        return int(size / self._bytes_per_token)


def _is_shared(keys: PrefixKeys, index: int) -> bool:
    """Whether the key is of what conversations begin with: tools, system prompt, a document."""
    return index < keys.home or index == len(keys.keys) - 1 == keys.home
