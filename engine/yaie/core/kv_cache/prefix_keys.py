"""Which prefix keys (`yaie_api.prefix`) the cache has: each is tied to the last page it covers.

    key ──▶ (page, tokens)          page ──▶ its keys, oldest first

A page of the radix tree stands for one prefix, and is evicted after all pages that follow it. So a
key is cached as long as its page is in the tree, however nodes are split meanwhile. `RadixCache`
owns the index and tells it which pages leave the tree. There are at most `KEYS_PER_PAGE` keys for a
page, so the cache bounds the index.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Final

KEYS_PER_PAGE: Final = 8
"""More than short messages need that end in one page of 16 tokens. A further key replaces the
oldest one: many requests may spell the same tokens in different JSON.
"""


class PrefixKeyIndex:
    """The tied keys, and what has changed since `take_changes`. `page_size`: in tokens."""

    def __init__(self, page_size: int) -> None:
        self._page_size = page_size
        self._ties: dict[int, tuple[int, int]] = {}
        self._keys_of: dict[int, list[int]] = {}
        self._before: dict[int, int] = {}
        """Of each key that has changed: how many tokens it covered before, 0 for none."""

    def __len__(self) -> int:
        return len(self._ties)

    @property
    def has_changes(self) -> bool:
        """Whether `take_changes` may have something to tell."""
        return bool(self._before)

    @property
    def tokens(self) -> dict[int, int]:
        """A copy: by key, how many tokens of it are cached."""
        return {key: tokens for key, (_, tokens) in self._ties.items()}

    def tie(self, pages: Sequence[int], keys: Iterable[tuple[int, int]]) -> None:
        """Tie keys to the pages of one prefix in the tree, in order. `keys`: (key, tokens covered),
        of which whole pages count. Keys beyond the pages are left out, and so are keys that are
        tied already: the next turn of a conversation would only move them by a few tokens.
        """
        for key, tokens in keys:
            n_pages = tokens // self._page_size
            if 0 < n_pages <= len(pages) and key not in self._ties:
                self._add(key, pages[n_pages - 1], n_pages * self._page_size)

    def forget(self, pages: Iterable[int]) -> None:
        """Untie the keys of pages that have left the tree."""
        if not self._keys_of:
            return
        for page in pages:
            for key in self._keys_of.pop(page, ()):
                self._remove(key)

    def take_changes(self, most: int) -> tuple[tuple[tuple[int, int], ...], tuple[int, ...]]:
        """Up to `most` changes since the last call: (key, tokens) that were added, and keys that
        were removed. What has come and gone meanwhile is in neither.
        """
        added, removed = [], []
        for key in tuple(islice(self._before, most)):
            before = self._before.pop(key)
            _, now = self._ties.get(key, (0, 0))
            if now not in (0, before):
                added.append((key, now))
            elif before and not now:
                removed.append(key)
        return tuple(added), tuple(removed)

    def drop_changes(self) -> None:
        """Forget what has changed: the caller tells all of `tokens` instead."""
        self._before.clear()

    def _add(self, key: int, page: int, tokens: int) -> None:
        keys = self._keys_of.setdefault(page, [])
        if len(keys) == KEYS_PER_PAGE:
            self._remove(keys.pop(0))
        keys.append(key)
        self._ties[key] = (page, tokens)
        self._before.setdefault(key, 0)

    def _remove(self, key: int) -> None:
        _, tokens = self._ties.pop(key)
        self._before.setdefault(key, tokens)

    def check(self, depths: Mapping[int, int]) -> None:
        """Prove that every key is tied to a page of the tree, and covers what is spelled up to its
        end; raises AssertionError. `depths`: by page of the tree, the number of pages up to it.
        """
        for key, (page, tokens) in self._ties.items():
            if depths.get(page) != tokens // self._page_size:
                raise AssertionError(f"key {key} covers {tokens} tokens, its page does not")
        found = {key: page for page, keys in self._keys_of.items() for key in keys}
        if found != {key: page for key, (page, _) in self._ties.items()}:
            raise AssertionError("keys and pages disagree about who belongs to whom")
        if any(not 0 < len(keys) <= KEYS_PER_PAGE for keys in self._keys_of.values()):
            raise AssertionError("a page has no keys, or too many")
