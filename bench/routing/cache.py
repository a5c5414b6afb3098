"""A simulated prefix cache: pages under chained hashes, the least recently used leaf goes first."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

PAGE_TOKENS: Final = 16
KEYS_PER_PAGE: Final = 8


class Cache:
    """`pages`: how many it has room for. Prefix keys are tied to pages as in engines."""

    def __init__(self, pages: int) -> None:
        self._most = pages
        self._pages: OrderedDict[int, None] = OrderedDict()
        self._keys_of: dict[int, list[int]] = {}
        self.ties: dict[int, tuple[int, int]] = {}
        self.added: dict[int, int] = {}
        self.removed: set[int] = set()

    def __len__(self) -> int:
        return len(self._pages)

    def matched(self, pages: Sequence[int]) -> int:
        """How many leading pages are cached."""
        for index, page in enumerate(pages):
            if page not in self._pages:
                return index
        return len(pages)

    def put(self, pages: Sequence[int]) -> None:
        """Use these pages of one prefix, from the root on: the root is used last."""
        table = self._pages
        for page in reversed(pages):
            table[page] = None
            table.move_to_end(page)
        while len(table) > self._most:
            page, _ = table.popitem(last=False)
            for key in self._keys_of.pop(page, ()):
                self._untie(key)

    def tie(self, pages: Sequence[int], keys: Sequence[tuple[int, int]]) -> None:
        """Publish keys, each with the number of tokens that it covers, while their page is here."""
        for key, tokens in keys:
            count = tokens // PAGE_TOKENS
            if not 0 < count <= len(pages) or key in self.ties:
                continue
            page = pages[count - 1]
            if page not in self._pages:
                continue
            here = self._keys_of.setdefault(page, [])
            if len(here) == KEYS_PER_PAGE:
                self._untie(here.pop(0))
            here.append(key)
            self.ties[key] = (page, count * PAGE_TOKENS)
            self.added[key] = count * PAGE_TOKENS
            self.removed.discard(key)

    def changes(self) -> tuple[tuple[tuple[int, int], ...], tuple[int, ...]]:
        """What was added and removed since the last call."""
        added, removed = tuple(self.added.items()), tuple(self.removed)
        self.added, self.removed = {}, set()
        return added, removed

    def _untie(self, key: int) -> None:
        del self.ties[key]
        if self.added.pop(key, None) is None:
            self.removed.add(key)
