"""Counts the requests in flight, and limits them.

It counts them by model and by endpoint, and refuses a request beyond its model's limit with 429.
The answer says when to retry: by Little's law a place becomes free every (mean duration / in
flight) seconds.
"""

from collections import Counter
from collections.abc import Callable
from math import ceil

from yaie_api.errors import OverloadedError

_SMOOTHING = 0.1
_LONGEST_RETRY_S = 60


class Admission:
    """Counts of requests in flight. Callers may only read `loads` (by endpoint) and
    `in_flight_by_model`.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.in_flight_by_model: Counter[str] = Counter()
        self._duration_s: dict[str, float] = {}
        self.loads: Counter[str] = Counter()

    @property
    def in_flight(self) -> int:
        return self.in_flight_by_model.total()

    def admitted(self, model: str, limit: int) -> "_Place":
        """Hold one of the model's places while the context is open.

        Raises:
            OverloadedError: all `limit` places are taken.

        """
        if self.in_flight_by_model[model] >= limit:
            raise OverloadedError(
                f"{limit} requests for model {model!r} are in flight, which is its limit.",
                retry_after_s=self.retry_after_s(model),
            )
        started_s = self._clock()
        return _Place(
            self.in_flight_by_model, model, lambda: self._learn(model, self._clock() - started_s)
        )

    def sent_to(self, endpoint: str) -> "_Place":
        """Count one request as in flight on this endpoint, while the context is open."""
        return _Place(self.loads, endpoint)

    def retry_after_s(self, model: str) -> int:
        """Return the seconds until a place is likely to be free: a whole number, at least 1."""
        mean_s = self._duration_s.get(model, 1.0)
        return min(_LONGEST_RETRY_S, max(1, ceil(mean_s / max(1, self.in_flight_by_model[model]))))

    def _learn(self, model: str, duration_s: float) -> None:
        mean_s = self._duration_s.get(model, duration_s)
        self._duration_s[model] = mean_s + _SMOOTHING * (duration_s - mean_s)


class _Place:
    """One of `counts[name]` while the context is open; `left` is called when it closes."""

    def __init__(
        self, counts: Counter[str], name: str, left: Callable[[], None] | None = None
    ) -> None:
        self._counts = counts
        self._name = name
        self._left = left

    def __enter__(self) -> None:
        self._counts[self._name] += 1

    def __exit__(self, *_: object) -> None:
        counts, name = self._counts, self._name
        counts[name] -= 1
        if not counts[name]:
            del counts[name]  # memory is bounded by what is in flight
        if self._left is not None:
            self._left()
