"""Which prefixes more than one request went on from. Bounded."""

from collections import OrderedDict
from typing import Final

MOST_BRANCHES: Final = 8192
"""Keys that are kept; the one that was visited longest ago is dropped."""


class Branches:
    """The keys that were the deepest one that any engine had, for some request."""

    def __init__(self) -> None:
        self._visited: OrderedDict[int, None] = OrderedDict()

    def visit(self, key: int) -> None:
        """Note that a request went on from here."""
        self._visited[key] = None
        self._visited.move_to_end(key)
        if len(self._visited) > MOST_BRANCHES:
            self._visited.popitem(last=False)

    def are_at(self, key: int) -> bool:
        """Whether a request has gone on from here before."""
        return key in self._visited
