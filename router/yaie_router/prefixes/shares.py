"""How many requests each engine of a model got lately, from all routers.

Engines say how many they got since their start. Time is counted in requests, not in seconds, so
that a quiet model forgets nothing, and routers that read the same reports come to the same counts.
"""

from collections.abc import Collection, Mapping
from typing import Final

WINDOW: Final = 64
"""Requests of each engine after which two thirds of what it got are forgotten."""
_MOST_WINDOWS: Final = 16
_LARGE: Final = 1e12


class Shares:
    """Counts of requests, of which older ones weigh less."""

    def __init__(self) -> None:
        self._received: dict[str, int] = {}
        self._counts: dict[str, float] = {}
        self._weight = 1.0

    def reported(self, engine: str, received: int) -> None:
        """Take in how many requests an engine got since its start.

        An engine that is new, or has started again, begins with the mean of the others, so that it
        does not get all that comes.
        """
        before = self._received.get(engine)
        self._received[engine] = received
        counts = self._counts
        if before is None or received < before:
            others = [count for name, count in counts.items() if name != engine]
            counts[engine] = sum(others) / len(others) if others else 0.0
        elif (came := received - before) > 0:
            window = WINDOW * len(counts)
            came = min(came, _MOST_WINDOWS * window)  # more would leave nothing of the rest either
            self._weight *= (1 + 1 / window) ** came
            counts[engine] += came * self._weight
            if self._weight > _LARGE:
                self._counts = {name: count / self._weight for name, count in counts.items()}
                self._weight = 1.0

    def of(self, engines: Collection[str]) -> Mapping[str, float]:
        """Each engine's count. One that has said nothing has the mean of those that have."""
        known = [self._counts[name] for name in engines if name in self._counts]
        mean = sum(known) / len(known) if known else 0.0
        return {name: self._counts.get(name, mean) / self._weight for name in engines}

    def retain(self, engines: set[str]) -> None:
        """Forget all other engines."""
        for name in self._received.keys() - engines:
            del self._received[name], self._counts[name]
