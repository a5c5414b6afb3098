"""How many tokens the next step may take: a controller fed with measured step times.

The cost of a step is modelled as  fixed + decode·rows + prefill·tokens + context·(tokens·context),
fitted online with forgetting. Errors count relative to the measured time, so that one slow step (a
compilation, a busy machine) weighs little against the usual ones. While nothing decodes, a step
takes all it may; otherwise prefill gets what the time target leaves beside the decodes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import mul

from yaie.core.batch import Batch

FIRST_CHUNK = 32
"""Prefill tokens beside decodes before any step was measured."""
MIN_CHUNK = 16
FIRST_GROWTH, GROWTH = 2.0, 1.5
"""A chunk is at most this many times the largest one that kept the target: quickly at first, with
care once a chunk was too large.
"""
KEPT, BRAKE = 1.25, 1.75
"""A step within the first multiple of its target kept it; one beyond the second halves the next
chunk, whatever the model says: it may not have noticed yet that the machine has become slower.
"""
MIN_SHARE = 0.25
"""Prefill gets at least this share of the decodes' time: it never starves."""
SHORTEST_S = 1e-6
"""Steps are never taken to be shorter: costs and targets stay above zero."""
FORGET = 0.8
N_TERMS = 4
SWEEPS = 25
CONVERGED = 1e-3


@dataclass(frozen=True, slots=True)
class StepLoad:
    """What a step computed: decode rows, prefill tokens, and tokens·context of its prefill."""

    decodes: int
    prefill_tokens: int
    prefill_context: int

    @classmethod
    def of(cls, batch: Batch) -> "StepLoad":
        n_chunks = tokens = context = 0
        for row in reversed(batch.rows):  # prefill rows come last
            if not row.tokens:
                break
            n_chunks += 1
            tokens += row.n_tokens
            context += row.n_tokens * (row.start + row.n_tokens // 2)
        return cls(len(batch.rows) - n_chunks, tokens, context)

    @property
    def terms(self) -> tuple[float, float, float, float]:
        """Regressors; thousands of tokens keep them in one order of magnitude."""
        return (1.0, self.decodes / 1e3, self.prefill_tokens / 1e3, self.prefill_context / 1e6)


class CostModel:
    """Seconds of a step from its load, by weighted least squares with costs that are not negative.

    Three classes of steps (decode, mixed, prefill) forget separately: an hour of pure decoding
    leaves the cost of prefill as it was last measured.
    """

    def __init__(self) -> None:
        self._moments = {kind: _Moments() for kind in ("decode", "mixed", "prefill")}
        self._costs = [0.0] * N_TERMS
        self._stale = False

    @property
    def costs(self) -> list[float]:
        """Seconds: fixed, per 1e3 decode rows, per 1e3 prefill tokens, per 1e6 token·context."""
        if self._stale:
            _descend(self._costs, list(self._moments.values()))
            self._stale = False
        return self._costs

    def observe(self, load: StepLoad, seconds: float) -> None:
        kind = "decode" if not load.prefill_tokens else "mixed" if load.decodes else "prefill"
        self._moments[kind].add(load.terms, max(seconds, SHORTEST_S))
        self._stale = True

    def seconds(self, load: StepLoad) -> float:
        return sum(cost * term for cost, term in zip(self.costs, load.terms, strict=True))

    def prefill_tokens(self, seconds: float, position: int) -> float:
        """Tokens from `position` on that take `seconds` beside what a step costs anyway."""
        per_token = self.costs[2] / 1e3 + self.costs[3] / 1e6 * position
        half_square = self.costs[3] / 1e6 / 2
        # half_square·n² + per_token·n = seconds, in the form that has no division by zero cost.
        root = math.sqrt(per_token * per_token + 4 * half_square * seconds)
        return 2 * seconds / (per_token + root) if root > 0 else math.inf


class _Moments:
    """Sums of weighted products of the terms and the measured seconds, old steps fading."""

    __slots__ = ("gram", "target")

    def __init__(self) -> None:
        self.gram = [[0.0] * N_TERMS for _ in range(N_TERMS)]
        self.target = [0.0] * N_TERMS

    def add(self, terms: Sequence[float], seconds: float) -> None:
        # Dividing a row by its seconds makes the residual relative to the measured time.
        for i, left in enumerate(terms):
            scaled = left / seconds
            self.target[i] = self.target[i] * FORGET + scaled
            row, scaled = self.gram[i], scaled / seconds
            for j, right in enumerate(terms):
                row[j] = row[j] * FORGET + scaled * right


def _descend(costs: list[float], parts: Sequence[_Moments]) -> None:
    """Move `costs` to the least squares of the summed moments, keeping every cost >= 0."""
    grams = [part.gram for part in parts]
    gram = [[sum(cells) for cells in zip(*rows, strict=True)] for rows in zip(*grams, strict=True)]
    target = [sum(cells) for cells in zip(*(part.target for part in parts), strict=True)]
    for _ in range(SWEEPS):
        moved = 0.0
        for i, row in enumerate(gram):
            if row[i] > 0:
                slope = target[i] - sum(map(mul, row, costs))
                new = max(0.0, costs[i] + slope / row[i])
                # In units of the relative error, so that the costs compare with each other.
                moved = max(moved, abs(new - costs[i]) * math.sqrt(row[i]))
                costs[i] = new
        if moved < CONVERGED:
            return


class StepBudget:
    """Sets the token budget of the next step.

    Args:
        max_tokens: upper bound (`max_num_batched_tokens`).
        target_s: a step with decodes stays near this; `math.inf` never limits (offline use).
        stall_ratio: nor does it take longer than this many times a step of its decodes alone.

    """

    def __init__(self, max_tokens: int, target_s: float, *, stall_ratio: float = 2.0) -> None:
        self._max_tokens = max_tokens
        self._target_s = target_s
        self._stall_ratio = stall_ratio
        self._model = CostModel()
        self._cap = float(FIRST_CHUNK)
        self._growth = FIRST_GROWTH

    def tokens(self, decodes: int, position: int = 0) -> int:
        """Budget of a step with `decodes` decode rows whose prefill goes on at `position`.

        There is always room for some prefill: decodes slow it down but never stop it.
        """
        room = max(self._max_tokens - decodes, MIN_CHUNK)
        if decodes and not math.isinf(self._target_s):
            room = min(room, self._chunk(decodes, position))
        return decodes + room

    def observe(self, load: StepLoad, seconds: float) -> None:
        """A step with this load took `seconds`."""
        self._model.observe(load, seconds)
        if load.decodes and load.prefill_tokens:
            base_s, spare_s = self._times(load.decodes)
            self._limit(load.prefill_tokens, seconds / (base_s + spare_s))

    def _limit(self, tokens: int, over: float) -> None:
        """A chunk of `tokens` made its step take `over` times the target."""
        if over <= KEPT:
            self._cap = max(self._cap, tokens * self._growth)
        elif over > BRAKE:
            self._cap = max(MIN_CHUNK, tokens / 2)
            self._growth = GROWTH

    def _chunk(self, decodes: int, position: int) -> int:
        _, spare_s = self._times(decodes)
        tokens = min(self._model.prefill_tokens(spare_s, position), self._cap)
        return max(MIN_CHUNK, int(tokens))

    def _times(self, decodes: int) -> tuple[float, float]:
        """Seconds that the decodes take alone, and seconds left for prefill beside them."""
        base_s = max(self._model.seconds(StepLoad(decodes, 0, 0)), SHORTEST_S)
        target_s = min(self._target_s, self._stall_ratio * base_s)
        return base_s, max(target_s - base_s, MIN_SHARE * base_s)
