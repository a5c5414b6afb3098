"""Which prefixes many requests branch from, and how much each engine of a model got lately. Bounded.

Time is counted in requests, not in seconds, so that a quiet model forgets nothing.
"""

from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from typing import Final

MOST_BRANCHES: Final = 8192
"""Keys whose visits are counted; the one visited longest ago is dropped."""
WINDOW: Final = 64
"""Requests of each engine after which two thirds of what it got are forgotten."""
_LARGE: Final = 1e12


class Branches:
    """Counts how often a key was the deepest one that any engine had."""

    def __init__(self) -> None:
        self._visits: OrderedDict[int, int] = OrderedDict()

    def visit(self, key: int) -> None:
        """Note that a request went on from here."""
        self._visits[key] = self._visits.pop(key, 0) + 1
        if len(self._visits) > MOST_BRANCHES:
            self._visits.popitem(last=False)

    def are_at(self, key: int) -> bool:
        """Whether a request has gone on from here before."""
        return key in self._visits


class Shares:
    """What each engine got lately, in any unit."""

    def __init__(self) -> None:
        self._amounts: dict[str, float] = {}
        self._weight = 1.0

    def add(self, engine: str, amount: float, engines: Collection[str]) -> None:
        """Note that one of these engines got something. One that is new begins with their mean, so
        that it does not get all that comes.
        """
        self._weight *= 1 + 1 / (WINDOW * len(engines))
        amounts = self._amounts
        for name in engines:
            if name not in amounts:
                known = [amounts[one] for one in engines if one in amounts]
                amounts[name] = sum(known) / len(known) if known else 0.0
        amounts[engine] += amount * self._weight
        if self._weight > _LARGE:
            self._amounts = {name: has / self._weight for name, has in amounts.items()}
            self._weight = 1.0

    def of(self, engines: Collection[str]) -> Mapping[str, float]:
        """Each engine's amount as a multiple of the mean of these engines."""
        known = [self._amounts[name] for name in engines if name in self._amounts]
        mean = sum(known) / len(known) if known else 0.0
        if not mean:
            return dict.fromkeys(engines, 1.0)
        return {name: self._amounts.get(name, mean) / mean for name in engines}

    def retain(self, engines: Iterable[str]) -> None:
        """Forget all other engines."""
        names = set(engines)
        self._amounts = {name: has for name, has in self._amounts.items() if name in names}
