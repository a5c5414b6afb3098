"""Admission, sharing and giving back of pages, one case each."""

from engine_harness import PAGE, make_spec
from yaie.core.kv_cache.radix_cache import BlockTable, PrefixPending, RadixCache
from yaie.core.kv_cache.radix_tree import pack


def make(num_pages: int = 16, *, groups: int = 1, caching: bool = True) -> RadixCache:
    return RadixCache(make_spec(groups=groups), num_pages, enable_prefix_caching=caching)


def allocate(kv: RadixCache, n_tokens: int, *, first: int = 0, salt: str = "") -> BlockTable:
    table = kv.allocate(salt, pack(range(first, first + n_tokens)), reserve=0)
    assert isinstance(table, BlockTable)
    return table


def test_the_last_token_of_a_prompt_is_always_computed() -> None:
    kv = make()
    first = allocate(kv, 2 * PAGE)
    kv.commit(first, 2 * PAGE)
    second = allocate(kv, 2 * PAGE)
    assert second.cached_tokens == PAGE
    assert second.pages[0][0] == first.pages[0][0]
    kv.check([first, second])


def test_pages_enter_the_tree_only_as_far_as_they_are_committed() -> None:
    kv = make()
    table = allocate(kv, 3 * PAGE)
    key = pack(range(3 * PAGE + 1))
    assert kv.lookup("", key) == 0
    kv.commit(table, 2 * PAGE + 1)
    assert kv.lookup("", key) == 2 * PAGE


def test_a_shared_uncached_prefix_is_waited_for_as_far_as_it_is_shared() -> None:
    kv = make()
    primary = allocate(kv, 3 * PAGE + 1)
    key = pack([*range(2 * PAGE), 77, 78, 79, 80, 81])
    assert kv.allocate("", key, reserve=0) == PrefixPending(primary, 2 * PAGE)
    kv.commit(primary, 2 * PAGE)
    follower = kv.allocate("", key, reserve=0)
    assert isinstance(follower, BlockTable)
    assert follower.cached_tokens == 2 * PAGE
    kv.check([primary, follower])


def test_nobody_waits_across_salts_or_without_a_cache() -> None:
    kv = make()
    tables = [allocate(kv, 2 * PAGE), allocate(kv, 2 * PAGE, salt="other")]
    kv.check(tables)
    plain = make(caching=False)
    plain.check([allocate(plain, 2 * PAGE), allocate(plain, 2 * PAGE)])


def test_nobody_waits_for_a_prefix_whose_pages_cannot_be_reused() -> None:
    kv = make()
    tables = [allocate(kv, PAGE), allocate(kv, PAGE)]
    kv.check(tables)


def test_without_a_cache_nothing_stays() -> None:
    kv = make(caching=False)
    table = allocate(kv, 3 * PAGE)
    kv.commit(table, 3 * PAGE)
    kv.release(table, pack(range(3 * PAGE)))
    assert (kv.free_pages, kv.cached_pages) == (15, 0)
    assert kv.lookup("", pack(range(3 * PAGE))) == 0


def test_admission_evicts_the_cache_but_leaves_the_reserve() -> None:
    kv = make(num_pages=5)
    table = allocate(kv, 2 * PAGE)
    kv.release(table, pack(range(2 * PAGE)))
    assert (kv.free_pages, kv.cached_pages) == (2, 2)
    other = pack(range(20, 20 + 3 * PAGE))
    assert kv.allocate("", other, reserve=2) is None
    table = kv.allocate("", other, reserve=1)
    assert isinstance(table, BlockTable)
    assert (kv.free_pages, kv.cached_pages) == (0, 1)
    kv.check([table])


def test_a_refused_admission_holds_nothing() -> None:
    kv = make(num_pages=4)
    table = allocate(kv, 2 * PAGE)
    kv.release(table, pack(range(2 * PAGE)))
    assert kv.allocate("", pack(range(4 * PAGE)), reserve=0) is None
    assert kv.cached_pages == 2
    kv.check([])


def test_a_prompts_own_cached_pages_do_not_count_as_evictable() -> None:
    kv = make(num_pages=4)
    table = allocate(kv, 2 * PAGE + 1)
    kv.release(table, pack(range(2 * PAGE)))
    table = allocate(kv, 3 * PAGE)
    assert table.cached_tokens == 2 * PAGE
    assert kv.extend(table) is None
    kv.check([table])


def test_twins_keep_one_copy_when_both_end() -> None:
    kv = make()
    first, second = allocate(kv, PAGE), allocate(kv, PAGE)
    key = pack(range(2 * PAGE))
    kv.extend(first)
    kv.extend(second)
    kv.release(first, key)
    kv.release(second, key)
    assert (kv.free_pages, kv.cached_pages) == (13, 2)
    kv.check([])


def test_poisoned_pages_are_forgotten_and_shared_ones_kept() -> None:
    kv = make()
    table = allocate(kv, PAGE + 1)
    kv.commit(table, PAGE + 1)
    bad = allocate(kv, 3 * PAGE)
    kv.commit(bad, 3 * PAGE)
    kv.discard(bad)
    assert kv.lookup("", pack(range(3 * PAGE + 1))) == PAGE
    assert kv.free_pages == 15 - 2
    kv.check([table])


def test_every_layer_group_gets_its_own_pages() -> None:
    kv = make(groups=2)
    table = allocate(kv, PAGE + 1)
    new = kv.extend(table)
    assert new is not None
    assert len(new) == 2
    assert [len(pages) for pages in table.pages] == [3, 3]
    kv.release(table, pack(range(2 * PAGE)))
    kv.check([])
