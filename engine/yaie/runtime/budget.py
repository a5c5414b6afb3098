"""How many tokens the next step may take: a controller fed with measured step times.

While nothing decodes, a step takes all it may. Otherwise prefill gets what a time target leaves
beside the decodes, by a cost model fitted online (`yaie.runtime.cost`), and no more than a cap that
grows while steps keep their target: a wrong model costs one slow step, not many.
"""

import math
from dataclasses import dataclass

from yaie.runtime.cost import SHORTEST_S, CostModel, StepLoad

FIRST_CHUNK = 32
"""Prefill tokens beside decodes before any step was measured."""
MIN_CHUNK = 16
FIRST_GROWTH, GROWTH = 2.0, 1.5
"""A chunk is at most this many times the largest one that kept the target lately: quickly at first,
with care once a chunk was too large.
"""
FADE = 0.9
"""How long "lately" is: a larger chunk counts this much less with every step."""
KEPT, BRAKE = 1.25, 1.75
"""A step within the first multiple of its target kept it; one beyond the second halves the next
chunk, whatever the model says: it may not have noticed yet that the machine has become slower.
"""
RECOVERY = 1.01
"""After a step that found no memory, the most that later ones take grows so much with each."""
MIN_SHARE = 0.25
"""Prefill gets at least this share of the decodes' time: it never starves."""
STRETCH = 1.3
"""A step may last this many times the stall ratio where less would be wasted on overhead."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """Seconds of a step: its decodes, what any chunk costs at once, and its tokens' share."""

    decodes_s: float
    overhead_s: float
    tokens_s: float

    @property
    def total_s(self) -> float:
        return self.decodes_s + self.overhead_s + self.tokens_s


class StepBudget:
    """Sets the token budget of the next step.

    Args:
        max_tokens: upper bound (`max_num_batched_tokens`).
        target_s: a step with decodes stays near this; `math.inf` never limits (offline use).
        stall_ratio: nor does it take longer than this many times a step of its decodes alone.

    """

    def __init__(self, max_tokens: int, target_s: float, *, stall_ratio: float = 1.75) -> None:
        self._max_tokens = max_tokens
        self._target_s = target_s
        self._stall_ratio = stall_ratio
        self._model = CostModel()
        self._ceiling = float(max_tokens)
        self._cap = float(FIRST_CHUNK)
        self._growth = FIRST_GROWTH
        self._measured = False
        self._launched: tuple[StepLoad, ...] = ()

    def tokens(self, decodes: int, position: int = 0) -> int:
        """Budget of a step with `decodes` decode rows whose prefill goes on at `position`.

        There is always room for some prefill: decodes slow it down but never stop it.
        """
        room = max(int(self._ceiling) - decodes, MIN_CHUNK)
        if decodes and not math.isinf(self._target_s):
            room = min(room, self._chunk(decodes, position))
        return decodes + room

    def launched(self, load: StepLoad) -> None:
        """A step with this load begins."""
        self._launched = (*self._launched[-1:], load)

    def expected_s(self) -> float | None:
        """What earlier steps say that the last two launched ones take; None: nothing is known."""
        if not self._measured:
            return None
        return sum(self._model.seconds(load) for load in self._launched)

    def observe(self, load: StepLoad, seconds: float) -> None:
        """A step with this load took `seconds`."""
        self._measured = True
        self._ceiling = min(self._ceiling * RECOVERY, float(self._max_tokens))
        if math.isinf(self._target_s):
            return
        self._model.observe(load, seconds)
        if load.decodes and load.prefill_tokens:
            position = load.reads - load.prefill_tokens
            plan = self._plan(load.decodes, position)
            self._limit(load.prefill_tokens, seconds / plan.total_s)

    def exhausted(self, tokens: int) -> None:
        """A step of so many tokens found no memory: later ones take half, and slowly more again."""
        self._ceiling = max(MIN_CHUNK, min(self._ceiling, tokens) / 2)

    def _limit(self, tokens: int, over: float) -> None:
        """A chunk of `tokens` made its step take `over` times the target."""
        if over <= KEPT:
            self._cap = max(self._cap * FADE, tokens * self._growth)
        elif over > BRAKE:
            self._cap = max(MIN_CHUNK, tokens / 2)
            self._growth = GROWTH

    def _chunk(self, decodes: int, position: int) -> int:
        plan = self._plan(decodes, position)
        tokens = min(self._model.prefill_tokens(plan.tokens_s, position), self._cap)
        return max(MIN_CHUNK, int(tokens))

    def _plan(self, decodes: int, position: int) -> _Plan:
        """The target leaves prefill some seconds. If they hardly pay for a chunk's overhead, it
        gets as much again for its tokens, within the stretched target: tiny chunks at a large
        overhead would take for ever.
        """
        decodes_s = max(self._model.seconds(StepLoad(decodes)), SHORTEST_S)
        overhead_s = self._model.overhead_s(position)
        spare_s = self._stall_ratio * decodes_s - decodes_s - overhead_s
        spare_s = min(spare_s, self._target_s - decodes_s - overhead_s)
        useful_s = max(overhead_s, MIN_SHARE * decodes_s)
        most_s = STRETCH * self._stall_ratio * decodes_s - decodes_s - overhead_s
        return _Plan(decodes_s, overhead_s, max(spare_s, min(useful_s, most_s), 0.0))
