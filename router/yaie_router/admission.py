"""How much is in flight, and when it is too much: the router's only counters that decide.

Counts requests by model and by endpoint, refuses what exceeds a model's limit with 429, and says
when to come back: by Little's law a place falls free every (mean duration / in flight) seconds.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import ceil

from yaie_api.errors import OverloadedError

_SMOOTHING = 0.1
_LONGEST_RETRY_S = 60


class Admission:
    """In-flight counts; `loads` (by endpoint) and `in_flight_by_model` are for reading only."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.in_flight_by_model: Counter[str] = Counter()
        self._duration_s: dict[str, float] = {}
        self.loads: Counter[str] = Counter()

    @property
    def in_flight(self) -> int:
        return self.in_flight_by_model.total()

    @contextmanager
    def admitted(self, model: str, limit: int) -> Iterator[None]:
        """Hold one place of the model.

        Raises:
            OverloadedError: all `limit` places are taken.

        """
        if self.in_flight_by_model[model] >= limit:
            raise OverloadedError(
                f"{limit} requests for model {model!r} are in flight, which is its limit.",
                retry_after_s=self.retry_after_s(model),
            )
        self.in_flight_by_model[model] += 1
        started_s = self._clock()
        try:
            yield
        finally:
            self._leave(self.in_flight_by_model, model)
            self._learn(model, self._clock() - started_s)

    @contextmanager
    def sent_to(self, endpoint: str) -> Iterator[None]:
        """Count one request as in flight on this endpoint."""
        self.loads[endpoint] += 1
        try:
            yield
        finally:
            self._leave(self.loads, endpoint)

    def retry_after_s(self, model: str) -> int:
        """Whole seconds until a place is likely free, at least 1."""
        mean_s = self._duration_s.get(model, 1.0)
        return min(_LONGEST_RETRY_S, max(1, ceil(mean_s / max(1, self.in_flight_by_model[model]))))

    def _learn(self, model: str, duration_s: float) -> None:
        mean_s = self._duration_s.get(model, duration_s)
        self._duration_s[model] = mean_s + _SMOOTHING * (duration_s - mean_s)

    @staticmethod
    def _leave(counts: Counter[str], name: str) -> None:
        counts[name] -= 1
        if not counts[name]:
            del counts[name]  # memory is bounded by what is in flight
