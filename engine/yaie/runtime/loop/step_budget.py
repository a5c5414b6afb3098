"""Sets the token budget of the next step from a time target and measured steps.

While no sequence decodes, a step takes as many tokens as it may. Otherwise the prefill chunk has

    the size that computes most tokens per second, of those whose step keeps to the target,
    but at least the size whose tokens take as long as the fixed cost of a step (the floor),
    and, if prompts arrive faster than such chunks compute them, the smallest size that keeps up.

Stability comes before the target: a queue that grows without end delays every request by more than
one long step. `step_cost` predicts the times of steps. No clock, no device.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from yaie.runtime.loop.step_cost import SHORTEST_S, SIZES, StepCosts, StepShape

MIN_CHUNK = 16
FIRST_CHUNK = 32
"""Prefill tokens beside decodes before any step was measured, if the floor is lower."""
GROWTH = 2.0
"""A chunk is at most this many times the largest measured one: predictions beyond are guesses."""
AS_FAST = 0.95
"""A larger chunk is preferred if it reaches this share of the best tokens per second."""
AIM = 0.9
"""Steps are planned for this share of the target, because their times vary."""
HEADROOM = 1.2
"""Chunks should compute this many times the tokens that arrive."""
RECOVERY = 1.01
"""After a step that ran out of memory, the maximum size of steps grows by this factor per step."""


@dataclass(frozen=True, slots=True)
class StepLimits:
    """Limits of a step.

    Attributes:
        max_tokens: upper bound of a step (`max_num_batched_tokens`).
        target_s: a step with decodes stays near this; `math.inf` never limits (offline use).
        floor_tokens: a step with prefill holds at least this many tokens, whatever the target; at
            least half of them are prefill.
        pay_overhead: raise the floor to the size whose tokens take as long as the fixed cost of a
            step (on a GPU, launching a step of few tokens takes as long as one of hundreds).
        context_weight: cost of attending to one earlier position, in tokens.

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
        """Number of steps that could take longer than the target, so that the queue drains."""
        self._costs = StepCosts(limits.context_weight)
        self._ceiling = float(limits.max_tokens)
        self._within_target = limits.max_tokens
        self._launched: tuple[StepShape, ...] = ()
        for load, seconds in measured:
            self._costs.observe(load, seconds)

    def tokens(self, decodes: int, position: int = 0, arriving_per_s: float = 0.0) -> int:
        """Budget of a step with `decodes` decode rows whose prefill continues at `position`.

        `arriving_per_s`: prompt tokens per second that arrive and are not cached. There is always
        room for some prefill: decodes slow it down but never stop it.
        """
        room = max(int(self._ceiling) - decodes, MIN_CHUNK)
        self._within_target = room
        if decodes and self.hurries:
            chunks = [size - decodes for size in SIZES if MIN_CHUNK <= size - decodes < room]
            room = self._chunk([*chunks, room], decodes, position, arriving_per_s)
        return decodes + room

    def launched(self, load: StepShape) -> None:
        """Record that a step was launched."""
        self._launched = (*self._launched[-1:], load)
        if load.decodes and load.prefill_tokens > self._within_target:
            self.steps_past_target += 1

    @property
    def hurries(self) -> bool:
        """Whether there is a time target; there is none in offline use."""
        return not math.isinf(self.limits.target_s)

    def step_s(self, load: StepShape) -> float | None:
        """Expected seconds of a step; None: nothing was measured."""
        return self._costs.seconds(load)

    def expected_s(self) -> float | None:
        """Expected seconds of the last two launched steps together; None: nothing was measured."""
        expected = [self._costs.seconds(load) for load in self._launched]
        known = [seconds for seconds in expected if seconds is not None]
        return sum(known) if known and len(known) == len(expected) else None

    def observe(self, load: StepShape, seconds: float) -> None:
        """Record that a step took `seconds`."""
        self._ceiling = min(self._ceiling * RECOVERY, float(self.limits.max_tokens))
        self._costs.observe(load, seconds)

    def exhausted(self, tokens: int) -> None:
        """Record that a step of `tokens` tokens ran out of memory: later steps take half, then
        slowly more.
        """
        self._ceiling = max(MIN_CHUNK, min(self._ceiling, tokens) / 2)

    def _chunk(self, sizes: list[int], decodes: int, position: int, arriving_per_s: float) -> int:
        """Choose one of `sizes` (ascending) by the target, or a larger one if arriving prompts need
        it.
        """
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
        """The sizes that may be used, each with the expected seconds of its step."""
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
        """The smallest chunk that takes as long as the fixed cost of its step. Twice as many tokens
        if the fixed cost alone misses the target: steps are long anyway then, so there should be
        few of them.
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
    """Of the chunks whose steps keep to `limit_s`, the largest with at least `AS_FAST` of the best
    tokens per second; the smallest chunk if no step keeps to it.
    """
    fitting = [item for item in known if item[1] <= limit_s] or known[:1]
    best = max(tokens / seconds for tokens, seconds in fitting)
    return max(tokens for tokens, seconds in fitting if tokens / seconds >= AS_FAST * best)


def _draining(known: list[tuple[int, float]], chosen: int, wanted_per_s: float) -> int:
    """The smallest chunk, from `chosen` on, that computes `wanted_per_s` tokens per second; the
    largest chunk if there is none.
    """
    if wanted_per_s <= 0:
        return chosen
    larger = [(tokens, seconds) for tokens, seconds in known if tokens >= chosen]
    enough = (tokens for tokens, seconds in larger if tokens >= wanted_per_s * seconds)
    return next(enough, larger[-1][0] if larger else chosen)
