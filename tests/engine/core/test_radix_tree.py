"""The radix tree against a plain page trie that does everything the slow way."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    rule,
)

from yaie.core.kv_cache.radix_tree import Node, RadixTree, common_pages, pack

PAGE = 2


def key(*pages: int) -> bytes:
    """A key whose pages are told apart by one number each."""
    return pack(token for page in pages for token in (page, page))


def put(tree: RadixTree, salt: str, content: bytes, first_page: int) -> Node:
    """Insert `content` with page numbers from `first_page` on; the node stays held."""
    node, _ = tree.hold(salt, b"", 0)
    n_pages = len(content) // len(key(0))
    return tree.insert(node, content, (list(range(first_page, first_page + n_pages)),))[0]


def test_matching_ends_at_the_first_page_that_differs_and_splits_there() -> None:
    tree = RadixTree(PAGE)
    tree.release(put(tree, "", key(1, 2, 3, 4), 10))
    node, n_pages = tree.hold("", key(1, 2, 9), 3)
    assert n_pages == 2
    assert tree.pages(node) == ([10, 11],)
    assert (tree.held_pages, tree.cached_pages) == (2, 2)
    tree.check()


def test_matching_uses_no_more_pages_than_allowed() -> None:
    tree = RadixTree(PAGE)
    tree.release(put(tree, "", key(1, 2, 3), 10))
    assert tree.lookup("", key(1, 2, 3), 2) == 2
    assert tree.lookup("", key(1, 2, 3), 3) == 3
    assert tree.lookup("", key(1, 2, 3) + pack([7]), 9) == 3


def test_salts_share_nothing() -> None:
    tree = RadixTree(PAGE)
    tree.release(put(tree, "tenant-a", key(1, 2), 10))
    assert tree.lookup("tenant-b", key(1, 2), 2) == 0
    assert tree.lookup("tenant-a", key(1, 2), 2) == 2


def test_inserting_what_is_known_takes_only_the_new_pages() -> None:
    tree = RadixTree(PAGE)
    first = put(tree, "", key(1, 2), 10)
    root, _ = tree.hold("", b"", 0)
    second, known = tree.insert(root, key(1, 2, 3), ([20, 21, 22],))
    assert known == 2
    assert tree.pages(second) == ([10, 11, 22],)
    assert tree.pages(first) == ([10, 11],)


def test_the_least_recently_used_leaf_goes_first_and_from_its_end() -> None:
    tree = RadixTree(PAGE)
    tree.release(put(tree, "", key(1, 2, 3), 10))
    tree.release(put(tree, "", key(1, 5), 20))
    tree.release(tree.hold("", key(1, 2, 3), 3)[0])
    assert tree.evict(1) == ([21],)
    assert tree.evict(1) == ([12],)
    assert tree.evict(9) == ([11, 10],)
    tree.check()
    assert tree.cached_pages == 0


def test_held_pages_are_never_evicted() -> None:
    tree = RadixTree(PAGE)
    held = put(tree, "", key(1, 2), 10)
    tree.release(put(tree, "", key(1, 2, 3), 20))
    assert tree.evict(9) == ([22],)
    assert tree.pages(held) == ([10, 11],)


def test_forgetting_spares_what_others_hold() -> None:
    tree = RadixTree(PAGE)
    other = put(tree, "", key(1, 2), 10)
    bad = put(tree, "", key(1, 2, 3, 4), 20)
    tree.release(put(tree, "", key(1, 2, 3, 4, 5), 30))
    tree.release(bad)
    assert sorted(tree.forget(bad)[0]) == [22, 23, 34]
    assert tree.lookup("", key(1, 2, 3), 3) == 2
    tree.release(other)
    tree.check()


def test_an_unused_root_leaves_nothing_behind() -> None:
    tree = RadixTree(PAGE)
    for tenant in range(100):
        tree.release(tree.hold(f"tenant-{tenant}", key(1), 1)[0])
    assert tree.check() == []


@pytest.mark.parametrize("n_common", [0, 1, 2, 3, 7, 8])
def test_common_pages_counts_whole_leading_pages(n_common: int) -> None:
    left = key(*range(8)) + pack([1])
    right = key(*range(n_common), *range(50, 55))
    assert common_pages(left, right, len(key(0))) == n_common


Prefix = tuple[str, tuple[int, ...]]


class _Page:
    """One page of the naive trie."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.last_used = 0


class RadixMachine(RuleBasedStateMachine):
    """Every result of the tree, evictions in order included, equals the naive trie's."""

    holds = Bundle("holds")
    salts = st.sampled_from(["", "x"])
    contents = st.lists(st.integers(0, 1), max_size=6).map(tuple)

    @initialize(groups=st.integers(1, 2))
    def start(self, groups: int) -> None:
        self.tree = RadixTree(PAGE, groups)
        self.groups = groups
        self.trie: dict[Prefix, _Page] = {}
        self.live: dict[int, tuple[Node, Prefix]] = {}
        self.next_number = self.clock = self.next_hold = 0

    def prefixes(self, salt: str, content: tuple[int, ...]) -> list[Prefix]:
        return [(salt, content[: n + 1]) for n in range(len(content))]

    def in_use(self, prefix: Prefix) -> bool:
        salt, content = prefix
        return any(
            held[0] == salt and held[1][: len(content)] == content for _, held in self.live.values()
        )

    def is_leaf(self, prefix: Prefix) -> bool:
        salt, content = prefix
        return not any(
            other[0] == salt and other[1][:-1] == content and other[1] for other in self.trie
        )

    def numbers(self, prefixes: list[Prefix], group: int) -> list[int]:
        return [self.trie[prefix].number + 1000 * group for prefix in prefixes]

    def agree(self, node: Node, prefix: Prefix) -> None:
        prefixes = self.prefixes(*prefix)
        expected = tuple(self.numbers(prefixes, group) for group in range(self.groups))
        assert self.tree.pages(node) == expected

    @rule(target=holds, salt=salts, content=contents, most=st.integers(0, 6))
    def hold(self, salt: str, content: tuple[int, ...], most: int) -> int:
        known = [p for p in self.prefixes(salt, content)[:most] if p in self.trie]
        assert self.tree.lookup(salt, key(*content), most) == len(known)
        node, n_pages = self.tree.hold(salt, key(*content), most)
        assert n_pages == len(known)
        self.next_hold += 1
        self.live[self.next_hold] = (node, (salt, content[:n_pages]))
        return self.next_hold

    @rule(hold=holds, more=contents)
    def insert(self, hold: int, more: tuple[int, ...]) -> None:
        if hold not in self.live:
            return
        node, (salt, content) = self.live[hold]
        numbers = [self.next_number + i for i in range(len(more))]
        self.next_number += len(more)
        pages = tuple([n + 1000 * group for n in numbers] for group in range(self.groups))
        node, known = self.tree.insert(node, key(*more), pages)
        new = self.prefixes(salt, content + more)[len(content) :]
        assert known == sum(prefix in self.trie for prefix in new)
        for prefix, number in zip(new, numbers, strict=True):
            self.trie.setdefault(prefix, _Page(number))
        self.live[hold] = (node, (salt, content + more))

    @rule(hold=consumes(holds), forget=st.booleans())
    def release(self, hold: int, forget: bool) -> None:
        node, (salt, content) = self.live.pop(hold)
        self.clock += 1
        for prefix in self.prefixes(salt, content):
            self.trie[prefix].last_used = self.clock
        self.tree.release(node)
        if forget:
            self.forget(node, salt, content)

    def forget(self, node: Node, salt: str, content: tuple[int, ...]) -> None:
        path = self.prefixes(salt, content)
        top = next((prefix for prefix in path if not self.in_use(prefix)), None)
        gone = [
            prefix
            for prefix in self.trie
            if top and prefix[0] == salt and prefix[1][: len(top[1])] == top[1]
        ]
        evicted = self.tree.forget(node)
        assert sorted(evicted[0]) == sorted(self.numbers(gone, 0))
        for prefix in gone:
            del self.trie[prefix]

    @rule(n=st.integers(1, 5))
    def evict(self, n: int) -> None:
        expected: list[int] = []
        while len(expected) < n:
            leaves = [p for p in self.trie if self.is_leaf(p) and not self.in_use(p)]
            if not leaves:
                break
            victim = min(leaves, key=lambda prefix: self.trie[prefix].last_used)
            expected.append(self.trie.pop(victim).number)
        evicted = self.tree.evict(n)
        assert sorted(evicted[0]) == sorted(expected)
        assert all(len(group) == len(expected) for group in evicted)

    @invariant()
    def proves_itself(self) -> None:
        if not hasattr(self, "tree"):
            return
        self.tree.check()
        held = sum(self.in_use(prefix) for prefix in self.trie)
        assert (self.tree.held_pages, self.tree.cached_pages) == (held, len(self.trie) - held)
        for node, prefix in self.live.values():
            self.agree(node, prefix)


TestRadixTree = RadixMachine.TestCase
TestRadixTree.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
