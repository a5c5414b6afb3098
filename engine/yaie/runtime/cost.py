"""What a step costs: seconds as a sum of simple terms, fitted online.

    fixed + decodes + prefill chunks + positions they read + their tokens + tokens·context

Errors count relative to the measured time, so one slow step (a compilation, a busy machine) weighs
little against the usual ones. Used by `yaie.runtime.budget` only.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import mul

from yaie.core.batch import Batch

FORGET = 0.85
RIDGE = 1e-3
"""Pulls costs that the steps seen so far cannot tell apart towards an even split."""
SHORTEST_S = 1e-6
"""Steps are never taken to be shorter: costs and targets stay above zero."""


@dataclass(frozen=True, slots=True)
class StepLoad:
    """What a step computed.

    `decodes`: decode rows. `chunks`: prefill rows. `reads`: positions that the chunks attend to,
    their own included. `prefill_tokens`: tokens of the chunks. `context`: tokens times the
    positions before each of them.
    """

    decodes: int
    chunks: int = 0
    reads: int = 0
    prefill_tokens: int = 0
    context: int = 0

    @classmethod
    def of(cls, batch: Batch) -> "StepLoad":
        chunks = reads = tokens = context = 0
        for row in reversed(batch.rows):  # prefill rows come last
            if not row.tokens:
                break
            chunks += 1
            reads += row.start + row.n_tokens
            tokens += row.n_tokens
            context += row.n_tokens * (row.start + row.n_tokens // 2)
        return cls(len(batch.rows) - chunks, chunks, reads, tokens, context)

    @property
    def terms(self) -> tuple[float, ...]:
        return (1.0, self.decodes, self.chunks, self.reads, self.prefill_tokens, self.context)


FIXED, DECODE, CHUNK, READ, TOKEN, CONTEXT = range(6)
N_TERMS = 6


class CostModel:
    """Weighted least squares with costs that are not negative.

    Three classes of steps (decode, mixed, prefill) forget separately: an hour of pure decoding
    leaves the cost of prefill as it was last measured.
    """

    def __init__(self) -> None:
        self._moments = {kind: _Moments() for kind in ("decode", "mixed", "prefill")}
        self._costs = [0.0] * N_TERMS
        self._stale = False

    @property
    def costs(self) -> list[float]:
        """Seconds for one of each term."""
        if self._stale:
            self._costs = _solve(list(self._moments.values()))
            self._stale = False
        return self._costs

    def observe(self, load: StepLoad, seconds: float) -> None:
        kind = "decode" if not load.chunks else "mixed" if load.decodes else "prefill"
        self._moments[kind].add(load.terms, max(seconds, SHORTEST_S))
        self._stale = True

    def seconds(self, load: StepLoad) -> float:
        return float(sum(map(mul, self.costs, load.terms)))

    def overhead_s(self, position: int) -> float:
        """What a chunk from `position` on costs however few its tokens are."""
        return self.costs[CHUNK] + self.costs[READ] * position

    def prefill_tokens(self, seconds: float, position: int) -> float:
        """Tokens from `position` on that take `seconds` beside their chunk's overhead."""
        costs = self.costs
        per_token = costs[TOKEN] + costs[READ] + costs[CONTEXT] * position
        # context/2·n² + per_token·n = seconds, in the form that has no division by a zero cost.
        root = math.sqrt(per_token * per_token + 2 * costs[CONTEXT] * seconds)
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


def _solve(parts: Sequence[_Moments]) -> list[float]:
    """Least squares over the summed moments; terms that came out negative are left out."""
    grams = [part.gram for part in parts]
    gram = [[sum(cells) for cells in zip(*rows, strict=True)] for rows in zip(*grams, strict=True)]
    target = [sum(cells) for cells in zip(*(part.target for part in parts), strict=True)]
    used = [i for i in range(N_TERMS) if gram[i][i] > 0]
    while used:
        costs = _eliminate(gram, target, used)
        worst = min(range(len(used)), key=costs.__getitem__)
        if costs[worst] >= 0:
            break
        del used[worst]
    full = [0.0] * N_TERMS
    for i, cost in zip(used, costs if used else (), strict=True):
        full[i] = cost
    return full


def _eliminate(gram: list[list[float]], target: list[float], used: list[int]) -> list[float]:
    """Solve the normal equations of the `used` terms, scaled to a unit diagonal plus the ridge."""
    scale = [1 / math.sqrt(gram[i][i]) for i in used]
    rows = [
        [gram[i][j] * s * t for j, t in zip(used, scale, strict=True)] + [target[i] * s]
        for i, s in zip(used, scale, strict=True)
    ]
    for k, pivot in enumerate(rows):
        pivot[k] += RIDGE
        for row in rows[k + 1 :]:
            factor = row[k] / pivot[k]
            for j in range(k, len(row)):
                row[j] -= factor * pivot[j]
    solution = [0.0] * len(used)
    for k in range(len(used) - 1, -1, -1):
        row = rows[k]
        known = sum(map(mul, row[k + 1 : -1], solution[k + 1 :]))
        solution[k] = (row[-1] - known) / row[k]
    return [value * s for value, s in zip(solution, scale, strict=True)]
