"""What a step takes, learned from steps: seconds by (decode rows, tokens).

A row of the table belongs to a bucket of decode rows and holds one measured point for each bucket
of sizes, a moving average. A step's size is its tokens, those of decodes too; 0 if it only decodes.
Between points a step's time is interpolated. Two facts keep old points from lying: a larger step
never takes less time than a smaller one, nor more than in proportion to its size. So a point that
was once measured too slow is corrected by the next smaller one, and no size stays out of reach.
Used by `yaie.runtime.loop.step_budget` only.
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
"""Upper bounds of buckets in tokens. Captured graphs have these sizes, too: a matrix product of 512
rows may take two thirds of the time of one of 576.
"""
NEWEST = 0.5
"""Weight of the newest measurement in an average."""
OUTLIER = 4.0
"""One measurement counts at most this many times what was expected of it."""
SHORTEST_S = 1e-6
"""Steps are never taken to be shorter."""


@dataclass(frozen=True, slots=True)
class StepShape:
    """What a step computes.

    `decodes`: decode rows. `chunks`: prefill rows. `prefill_tokens`: tokens of the chunks.
    `context`: the sum over these tokens of the positions before each.
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
        """Tokens of the step; 0 if it only decodes."""
        return self.decodes + self.prefill_tokens if self.prefill_tokens else 0


class Point(NamedTuple):
    """Steps of about `size` tokens took `seconds`."""

    size: float
    seconds: float


@dataclass(slots=True)
class _CostCurve:
    """What is known beside one bucket of decode rows, by bucket of sizes."""

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
        """By size, made consistent: time grows with size, and at most in proportion to it."""
        if self.curve is None:
            self.curve = _consistent([self.measured[bucket] for bucket in sorted(self.measured)])
        return self.curve

    @property
    def largest(self) -> float:
        """The largest size with prefill that was measured; 0: none."""
        return self.points()[-1].size

    @property
    def token_s(self) -> float:
        """Seconds of a token at the size that computes most of them a second; 0: none measured."""
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
    """Expects how long steps take.

    Attending to earlier positions comes on top of what the table says of a size.

    Args:
        context_weight: what attending to one earlier position costs a token, in tokens.

    """

    def __init__(self, context_weight: float = 0.0) -> None:
        self._context_weight = context_weight
        self._rows: dict[int, _CostCurve] = {}
        self._orders: dict[int, list[_CostCurve]] = {}
        """Rows by how alike they are to a decode bucket: a step looks up all its sizes in one."""

    def observe(self, load: StepShape, seconds: float) -> None:
        """A step took `seconds`."""
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
        """Expected seconds of a step; None: nothing like it was ever measured."""
        seconds = self.of(load.decodes, load.size)
        return None if seconds is None else seconds + self._context_s(load)

    def _context_s(self, load: StepShape) -> float:
        if not load.context or not self._context_weight:
            return 0.0
        token_s = next((row.token_s for row in self._alike(load.decodes) if row.largest), 0.0)
        return self._context_weight * load.context * token_s

    def of(self, decodes: int, size: float) -> float | None:
        """Expected seconds of `size` tokens, `decodes` of them decodes, without context."""
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
        """The smallest and largest size measured beside the most alike number of decode rows beside
        which two sizes were measured, or one; 0: none.
        """
        spans = [(row.smallest, row.largest) for row in self._alike(decodes) if row.largest]
        wide = (span for span in spans if span[0] < span[1])
        return next(wide, spans[0] if spans else (0.0, 0.0))

    def _alike(self, decodes: int) -> list[_CostCurve]:
        """Rows by how far their decode buckets are from that of `decodes`."""
        own = _decode_bucket(decodes)
        if own not in self._orders:
            keys = sorted(self._rows, key=lambda key: abs(key - own))
            self._orders[own] = [self._rows[key] for key in keys]
        return self._orders[own]


def _shifted(row: _CostCurve, other: _CostCurve, size: float) -> float:
    """What `other` says of the way from the nearest point of `row` to `size`."""
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
