"""How many tokens the next step may take: as many as a time target leaves, from measured steps.

While nothing decodes, a step takes all it may. Otherwise prefill gets

    of the chunks that a step of the target's length holds beside the decodes, the one that
        computes most tokens a second,
    but no fewer tokens than pay for what any chunk costs (the floor),
    and, when prompts arrive faster than such chunks drain them, the smallest chunk that does.

Stability comes before the target: a queue that grows without end delays everybody by more than one
long step. `step_cost` expects what steps take. Decisions are pure: no clock, no device.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from yaie.runtime.loop.step_cost import SHORTEST_S, SIZES, StepCosts, StepShape

MIN_CHUNK = 16
FIRST_CHUNK = 32
"""Prefill tokens beside decodes before any step was measured, where the floor is lower."""
GROWTH = 2.0
"""A chunk is at most this many times the largest one that was measured: expectations of larger ones
are guesses.
"""
AS_FAST = 0.95
"""A chunk that computes this share of the most tokens a second is preferred if it is larger."""
AIM = 0.9
"""Steps are planned so much shorter than the target: they vary."""
HEADROOM = 1.2
"""Prefill should drain this many times what arrives."""
RECOVERY = 1.01
"""After a step that found no memory, the most that later ones take grows so much with each."""


@dataclass(frozen=True, slots=True)
class StepLimits:
    """What a step should keep to.

    Attributes:
        max_tokens: upper bound of a step (`max_num_batched_tokens`).
        target_s: a step with decodes stays near this; `math.inf` never limits (offline use).
        floor_tokens: a step with prefill holds so many tokens, whatever the target says, at least
            half of them prefill.
        pay_overhead: raise the floor to where a chunk's tokens take as long as the rest of its step
            (a GPU, where launching a step of few tokens takes as long as one of hundreds).
        context_weight: what attending to one earlier position costs a token, in tokens.

    """

    max_tokens: int
    target_s: float
    floor_tokens: int = MIN_CHUNK
    pay_overhead: bool = False
    context_weight: float = 0.0


class StepBudget:
    """Sets the token budget of the next step. `measured`: steps that were timed before."""

    def __init__(
        self, limits: StepLimits, measured: Iterable[tuple[StepShape, float]] = ()
    ) -> None:
        self.limits = limits
        self.steps_past_target = 0
        """Steps that were allowed to take longer than the target, so that the queue drains."""
        self._costs = StepCosts(limits.context_weight)
        self._ceiling = float(limits.max_tokens)
        self._within_target = limits.max_tokens
        self._launched: tuple[StepShape, ...] = ()
        for load, seconds in measured:
            self._costs.observe(load, seconds)

    def tokens(self, decodes: int, position: int = 0, arriving_per_s: float = 0.0) -> int:
        """Budget of a step with `decodes` decode rows whose prefill goes on at `position`.

        `arriving_per_s`: prompt tokens a second that come in and are not cached. There is always
        room for some prefill: decodes slow it down but never stop it.
        """
        room = max(int(self._ceiling) - decodes, MIN_CHUNK)
        self._within_target = room
        if decodes and self.hurries:
            chunks = [size - decodes for size in SIZES if MIN_CHUNK <= size - decodes < room]
            room = self._chunk([*chunks, room], decodes, position, arriving_per_s)
        return decodes + room

    def launched(self, load: StepShape) -> None:
        """A step with this load begins."""
        self._launched = (*self._launched[-1:], load)
        if load.decodes and load.prefill_tokens > self._within_target:
            self.steps_past_target += 1

    @property
    def hurries(self) -> bool:
        """Whether somebody waits for each token: no offline use."""
        return not math.isinf(self.limits.target_s)

    def step_s(self, load: StepShape) -> float | None:
        """How long a step is expected to take; None: nothing is known."""
        return self._costs.seconds(load)

    def expected_s(self) -> float | None:
        """What earlier steps say that the last two launched ones take; None: nothing is known."""
        expected = [self._costs.seconds(load) for load in self._launched]
        known = [seconds for seconds in expected if seconds is not None]
        return sum(known) if known and len(known) == len(expected) else None

    def observe(self, load: StepShape, seconds: float) -> None:
        """A step with this load took `seconds`."""
        self._ceiling = min(self._ceiling * RECOVERY, float(self.limits.max_tokens))
        self._costs.observe(load, seconds)

    def exhausted(self, tokens: int) -> None:
        """A step of so many tokens found no memory: later ones take half, and slowly more again."""
        self._ceiling = max(MIN_CHUNK, min(self._ceiling, tokens) / 2)

    def _chunk(self, sizes: list[int], decodes: int, position: int, arriving_per_s: float) -> int:
        """One of `sizes`, ascending: what the target leaves, and past it what has to be drained."""
        least = max(self.limits.floor_tokens - decodes, self.limits.floor_tokens // 2, MIN_CHUNK)
        known = self._known(sizes, decodes, position)
        if not known:
            return min(max(least, FIRST_CHUNK), sizes[-1])
        within = _fastest(known, AIM * self.limits.target_s)
        floor = min(max(least, self._paying(decodes)), max(known[-1][0], least), sizes[-1])
        chosen = max(within, floor)
        self._within_target = chosen
        return _draining(known, chosen, HEADROOM * arriving_per_s)

    def _known(self, sizes: list[int], decodes: int, position: int) -> list[tuple[int, float]]:
        """Each size that may be tried, and the seconds of its step."""
        most = GROWTH * self._costs.span(decodes)[1]
        found: list[tuple[int, float]] = []
        for tokens in sizes:
            seconds = self._seconds(tokens, decodes, position)
            if seconds is None or (decodes + tokens > most and found):
                break
            found.append((tokens, seconds))
        return found

    def _seconds(self, tokens: int, decodes: int, position: int) -> float | None:
        context = tokens * (position + tokens // 2)
        return self._costs.seconds(StepShape(decodes, 1, tokens, context))

    def _paying(self, decodes: int) -> int:
        """Fewest tokens that take as long as what their step costs without them, or twice as long
        where that cost alone misses the target: as steps are long anyway, they should be few.
        """
        smallest, largest = self._costs.span(decodes)
        if not self.limits.pay_overhead or smallest >= largest:
            return 0
        few, most = (self._costs.of(decodes, size) for size in (smallest, largest))
        if few is None or most is None:
            return 0
        token_s = max((most - few) / (largest - smallest), SHORTEST_S / largest)
        paying = int(few / token_s - smallest)
        return 2 * paying if few > AIM * self.limits.target_s else paying


def _fastest(known: list[tuple[int, float]], limit_s: float) -> int:
    """Of the chunks whose steps keep to `limit_s`, the largest of those that compute about the most
    tokens a second; the smallest chunk if none does.
    """
    fitting = [item for item in known if item[1] <= limit_s] or known[:1]
    best = max(tokens / seconds for tokens, seconds in fitting)
    return max(tokens for tokens, seconds in fitting if tokens / seconds >= AS_FAST * best)


def _draining(known: list[tuple[int, float]], chosen: int, wanted_per_s: float) -> int:
    """The smallest chunk from `chosen` on that computes so many tokens a second, or the largest."""
    if wanted_per_s <= 0:
        return chosen
    larger = [(tokens, seconds) for tokens, seconds in known if tokens >= chosen]
    enough = (tokens for tokens, seconds in larger if tokens >= wanted_per_s * seconds)
    return next(enough, larger[-1][0] if larger else chosen)
