"""The keys that are published are those whose prefix the radix tree has, whatever was evicted."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from engine_harness import PAGE, make_spec
from yaie.core.kv_cache.prefix_keys import KEYS_PER_PAGE, PrefixKeyIndex
from yaie.core.kv_cache.radix_cache import BlockTable, RadixCache
from yaie.core.kv_cache.radix_tree import pack

SALTS = ("", "b")


def cached(kv: RadixCache, tokens: list[int], salt: str = "") -> None:
    """Let a sequence of these tokens run and end."""
    table = kv.allocate(salt, pack(tokens), reserve=0, wait=False)
    assert isinstance(table, BlockTable)
    kv.release(table, pack(tokens))


def test_a_key_covers_whole_pages_and_none_covers_more_than_is_cached() -> None:
    kv = RadixCache(make_spec(), 16)
    cached(kv, list(range(3 * PAGE)))
    tokens = [PAGE - 1, PAGE, 3 * PAGE - 1, 4 * PAGE]
    kv.tie("", pack(range(5 * PAGE)), [(7 + i, n) for i, n in enumerate(tokens)])
    assert kv.prefix_keys.tokens == {8: PAGE, 9: 2 * PAGE}
    assert kv.prefix_keys.take_changes(9) == (((8, PAGE), (9, 2 * PAGE)), ())
    assert kv.prefix_keys.take_changes(9) == ((), ())
    kv.check([])


def test_keys_go_with_their_pages_the_longest_prefix_first() -> None:
    kv = RadixCache(make_spec(), 5)
    cached(kv, list(range(3 * PAGE)))
    kv.tie("", pack(range(3 * PAGE)), [(1, PAGE), (3, 3 * PAGE)])
    kv.prefix_keys.drop_changes()
    cached(kv, list(range(50, 50 + 2 * PAGE)))  # takes the place of one page
    assert kv.prefix_keys.tokens == {1: PAGE}
    assert kv.prefix_keys.take_changes(9) == ((), (3,))
    kv.forget_cached()
    assert kv.prefix_keys.take_changes(9) == ((), (1,))
    assert len(kv.prefix_keys) == 0
    kv.check([])


def test_poisoned_pages_take_their_keys_along() -> None:
    kv = RadixCache(make_spec(), 16)
    table = kv.allocate("", pack(range(2 * PAGE)), reserve=0)
    assert isinstance(table, BlockTable)
    kv.commit(table, 2 * PAGE)
    kv.tie("", pack(range(2 * PAGE)), [(1, PAGE), (2, 2 * PAGE)])
    kv.discard(table)
    assert len(kv.prefix_keys) == 0
    assert not kv.prefix_keys.take_changes(9)[1]  # nobody had heard of them
    kv.check([])


def test_a_key_that_comes_back_before_anybody_is_told_is_no_change() -> None:
    index = PrefixKeyIndex(PAGE)
    index.tie([5], [(1, PAGE)])
    index.take_changes(9)
    index.forget([5])
    index.tie([6], [(1, PAGE)])
    assert index.take_changes(9) == ((), ())
    index.check({6: 1})


def test_many_spellings_of_one_prompt_take_bounded_memory() -> None:
    index = PrefixKeyIndex(PAGE)
    for key in range(1000):
        index.tie([5], [(key, PAGE)])
    assert set(index.tokens) == set(range(1000 - KEYS_PER_PAGE, 1000))
    index.check({5: 1})


def test_changes_are_told_in_portions() -> None:
    index = PrefixKeyIndex(PAGE)
    index.tie(range(5, 15), [(key, key * PAGE) for key in range(1, 11)])
    told = [index.take_changes(4)[0] for _ in range(3)]
    assert [len(some) for some in told] == [4, 4, 2]
    assert dict(pair for some in told for pair in some) == index.tokens


@settings(deadline=None, max_examples=150)
@given(st.integers(0, 1 << 32), st.integers(6, 20), st.integers(1, 2), st.integers(5, 50))
def test_published_keys_are_those_that_a_walk_of_the_tree_finds(
    seed: int, pages: int, groups: int, steps: int
) -> None:
    """Random conversations over few tokens, so that they share, split and push out each other. The
    keys of a walk are those that were tied to tokens that are still cached.
    """
    chance = random.Random(seed)
    kv = RadixCache(make_spec(groups=groups), pages)
    known: dict[int, tuple[str, list[int], int]] = {}
    told: dict[int, int] = {}
    running: list[tuple[BlockTable, list[int], str]] = []
    for step in range(steps):
        tokens = [chance.randrange(2) for _ in range(chance.randrange(1, 5 * PAGE))]
        salt = chance.choice(SALTS)
        match chance.randrange(6):
            case 0 | 1:
                table = kv.allocate(salt, pack(tokens), reserve=0, wait=False)
                if isinstance(table, BlockTable):
                    kv.commit(table, chance.randrange(len(tokens) + 1))
                    running.append((table, tokens, salt))
            case 2 if running:
                table, tokens, _ = running.pop(chance.randrange(len(running)))
                kv.release(table, pack(tokens))
            case 3 if running:
                kv.discard(running.pop(chance.randrange(len(running)))[0])
            case 4 if chance.random() < 0.2:
                kv.forget_cached()
            case _:
                if running:
                    _, tokens, salt = chance.choice(running)
                covers = sorted(chance.randrange(len(tokens) + PAGE) for _ in range(3))
                keys = [(3 * step + i, n) for i, n in enumerate(covers)]
                kv.tie(salt, pack(tokens), keys)
                known |= {
                    key: (salt, tokens, n // PAGE * PAGE)
                    for key, n in keys
                    if 0 < n // PAGE * PAGE <= found(kv, salt, tokens)
                }
        kv.check([table for table, _, _ in running])
        known = {k: v for k, v in known.items() if v[2] <= found(kv, v[0], v[1])}
        published = kv.prefix_keys.tokens
        assert published.items() <= {key: n for key, (_, _, n) in known.items()}.items()
        # What is missing had to give way to newer keys of its page.
        for key in known.keys() - published.keys():
            spelled = known.pop(key)
            twins = [k for k in published if same(known[k], spelled)]
            assert len(twins) == KEYS_PER_PAGE
            assert min(twins) > key
        added, removed = kv.prefix_keys.take_changes(10_000)
        assert not dict(added).keys() & set(removed)
        assert set(removed) <= told.keys()
        told = {k: n for k, n in told.items() if k not in removed} | dict(added)
        assert told == published


def found(kv: RadixCache, salt: str, tokens: list[int]) -> int:
    """Tokens that are cached, counted by a lookup, which leaves out the last token of a prompt."""
    return kv.lookup(salt, pack([*tokens, 9]))


def same(one: tuple[str, list[int], int], two: tuple[str, list[int], int]) -> bool:
    return (one[0], one[1][: one[2]]) == (two[0], two[1][: two[2]])
