"""Predicts the time of a step from measured steps: seconds by (decode rows, tokens).

Each row of the table belongs to a bucket of decode rows and holds one point for each bucket of
sizes, a moving average of measurements. The size of a step is its number of tokens, decodes
included, or 0 if it only decodes. Times between points are interpolated. Two rules correct outdated
points: a larger step never takes less time than a smaller one, and never more than in proportion to
its size. So a point that was once measured too slow is corrected by the next smaller one, and its
size can be chosen again. Only `yaie.runtime.loop.step_budget` uses `StepCosts`.
"""

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import NamedTuple

from yaie.core.batch import Batch

SIZES = (
    *(16, 24, 32, 48),
    *range(64, 385, 64),
    *(512, 640, 768, 1024),
    *range(1536, 4097, 512),
    *(size for k in range(12, 24) for size in (3 << (k - 1), 2 << k)),
)
"""Upper bounds of buckets in tokens. Captured graphs have these sizes too: a matrix product of 512
rows may take two thirds of the time of one of 576.
"""
NEWEST = 0.5
"""Weight of the newest measurement in an average."""
OUTLIER = 4.0
"""A measurement counts at most as this many times the expected time."""
SHORTEST_S = 1e-6
"""Lower bound of the time of a step, in seconds."""


@dataclass(frozen=True, slots=True)
class StepShape:
    """The amount of work in a step.

    `decodes`: decode rows. `chunks`: prefill rows. `prefill_tokens`: tokens of the chunks.
    `context`: sum, over these tokens, of the number of earlier positions.
    """

    decodes: int
    chunks: int = 0
    prefill_tokens: int = 0
    context: int = 0

    @classmethod
    def of(cls, batch: Batch) -> "StepShape":
        chunks = tokens = context = 0
        for row in reversed(batch.rows):  # prefill rows come last
            if not row.tokens:
                break
            chunks += 1
            tokens += row.n_tokens
            context += row.n_tokens * (row.start + row.n_tokens // 2)
        return cls(len(batch.rows) - chunks, chunks, tokens, context)

    @property
    def size(self) -> int:
        """Number of tokens in the step; 0 if it only decodes."""
        return self.decodes + self.prefill_tokens if self.prefill_tokens else 0


class Point(NamedTuple):
    """Steps of about `size` tokens took `seconds`."""

    size: float
    seconds: float


@dataclass(slots=True)
class _CostCurve:
    """The points measured for one bucket of decode rows, by bucket of sizes."""

    measured: dict[int, Point] = field(default_factory=dict)
    curve: list[Point] | None = None
    best: float | None = None

    def observe(self, point: Point) -> None:
        bucket = _bucket(point.size)
        old = self.measured.get(bucket, point)
        self.measured[bucket] = Point(
            old.size + NEWEST * (point.size - old.size),
            old.seconds + NEWEST * (point.seconds - old.seconds),
        )
        self.curve = self.best = None

    def points(self) -> list[Point]:
        """Points by size, made consistent: seconds grow with size, at most in proportion to it."""
        if self.curve is None:
            self.curve = _consistent([self.measured[bucket] for bucket in sorted(self.measured)])
        return self.curve

    @property
    def largest(self) -> float:
        """The largest size with prefill that was measured; 0: none."""
        return self.points()[-1].size

    @property
    def token_s(self) -> float:
        """Seconds per token at the size with the most tokens per second; 0: none was measured."""
        if self.best is None:
            rates = (point.seconds / point.size for point in self.points() if point.size)
            self.best = min(rates, default=0.0)
        return self.best

    @property
    def smallest(self) -> float:
        """The smallest size with prefill that was measured; 0: none."""
        return next((point.size for point in self.points() if point.size), 0.0)

    def reaches(self, size: float) -> bool:
        points = self.points()
        return points[0].size <= size <= points[-1].size

    def at(self, size: float) -> float:
        """Seconds of a step of `size`, interpolated, or in proportion beyond the largest point."""
        points = self.points()
        after = bisect_left(points, size, key=lambda point: point.size)
        if after == len(points):
            largest = points[-1]
            return largest.seconds * (size / largest.size if largest.size else 1.0)
        right = points[after]
        if after == 0 or right.size == size:
            return right.seconds
        left = points[after - 1]
        share = (size - left.size) / (right.size - left.size)
        return left.seconds + share * (right.seconds - left.seconds)


class StepCosts:
    """Predicts how long steps take.

    The table leaves out the attention to earlier positions, whose time is added.

    Args:
        context_weight: cost of attending to one earlier position, in tokens.

    """

    def __init__(self, context_weight: float = 0.0) -> None:
        self._context_weight = context_weight
        self._rows: dict[int, _CostCurve] = {}
        self._orders: dict[int, list[_CostCurve]] = {}
        """Rows by distance to a decode bucket, kept because a step looks up many sizes for one
        bucket.
        """

    def observe(self, load: StepShape, seconds: float) -> None:
        """Record that a step took `seconds`."""
        expected = self.seconds(load)
        if expected is not None:
            seconds = min(seconds, OUTLIER * expected)
        without = max(seconds - self._context_s(load), seconds / 2, SHORTEST_S)
        bucket = _decode_bucket(load.decodes)
        if bucket not in self._rows:
            self._rows[bucket] = _CostCurve()
            self._orders.clear()
        self._rows[bucket].observe(Point(load.size, without))

    def seconds(self, load: StepShape) -> float | None:
        """Expected seconds of a step; None: nothing similar was measured."""
        seconds = self.of(load.decodes, load.size)
        return None if seconds is None else seconds + self._context_s(load)

    def _context_s(self, load: StepShape) -> float:
        if not load.context or not self._context_weight:
            return 0.0
        token_s = next((row.token_s for row in self._alike(load.decodes) if row.largest), 0.0)
        return self._context_weight * load.context * token_s

    def of(self, decodes: int, size: float) -> float | None:
        """Expected seconds of `size` tokens, `decodes` of them decodes, without context; None:
        unknown.
        """
        rows = self._alike(decodes)
        reaching = next((row for row in rows if row.reaches(size)), None)
        if reaching is None:
            known = next((row for row in rows if row.largest > 0), None)
            return None if known is None else known.at(size)
        own = self._rows.get(_decode_bucket(decodes))
        if own is None or own is reaching:
            return reaching.at(size)
        return _shifted(own, reaching, size)

    def span(self, decodes: int) -> tuple[float, float]:
        """The smallest and the largest measured size, in the row nearest to `decodes` that has two
        sizes, or else in the nearest row that has one; 0: there is none.
        """
        spans = [(row.smallest, row.largest) for row in self._alike(decodes) if row.largest]
        wide = (span for span in spans if span[0] < span[1])
        return next(wide, spans[0] if spans else (0.0, 0.0))

    def _alike(self, decodes: int) -> list[_CostCurve]:
        """Rows by the distance of their decode bucket to that of `decodes`."""
        own = _decode_bucket(decodes)
        if own not in self._orders:
            keys = sorted(self._rows, key=lambda key: abs(key - own))
            self._orders[own] = [self._rows[key] for key in keys]
        return self._orders[own]


def _shifted(row: _CostCurve, other: _CostCurve, size: float) -> float:
    """Seconds at `size`: the nearest point of `row`, plus what `other` predicts between that point
    and `size`.
    """
    points = row.points()
    near = points[-1] if size > points[-1].size else points[0]
    seconds = near.seconds + other.at(size) - other.at(near.size)
    if size < near.size:
        return min(max(seconds, SHORTEST_S), near.seconds)
    most = near.seconds * size / near.size if near.size else seconds
    return max(near.seconds, min(seconds, most))


def _consistent(points: list[Point]) -> list[Point]:
    for i in range(len(points) - 2, -1, -1):
        points[i] = Point(points[i].size, min(points[i].seconds, points[i + 1].seconds))
    for i in range(1, len(points)):
        before, here = points[i - 1], points[i]
        if before.size:
            most = before.seconds * here.size / before.size
            points[i] = Point(here.size, min(here.seconds, most))
    return points


def _bucket(size: float) -> int:
    return bisect_left(SIZES, size) + 1 if size else 0


def _decode_bucket(decodes: int) -> int:
    """0, 1, 2, 3-4, 5-8, 9-16 … have numbers 0, 1, 2, 3, 4, 5 …"""
    return (decodes - 1).bit_length() + 1 if decodes else 0
