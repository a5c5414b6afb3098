"""Pages: owners are counted, scratch is never given away, nothing is lost."""

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    precondition,
    rule,
)

from yaie.core.kv_cache.block_pool import SCRATCH_PAGE, BlockPool, OutOfPagesError


def test_a_page_is_free_again_when_its_last_owner_leaves() -> None:
    pool = BlockPool(4)
    pages = pool.allocate(2)
    pool.share(pages)
    pool.release(pages)
    assert pool.free == 1
    pool.release(pages)
    assert pool.free == 3


def test_asking_for_too_many_pages_changes_nothing() -> None:
    pool = BlockPool(4)
    with pytest.raises(OutOfPagesError):
        pool.allocate(4)
    assert pool.free == 3
    assert pool.allocate(0) == []


@pytest.mark.parametrize("page", [SCRATCH_PAGE, 2])
def test_pages_without_an_owner_can_be_neither_shared_nor_released(page: int) -> None:
    pool = BlockPool(4)
    assert pool.allocate(1) == [1]
    with pytest.raises(ValueError, match="no owner"):
        pool.share([page])
    with pytest.raises(ValueError, match="no owner"):
        pool.release([page])


def test_a_pool_needs_a_page_besides_scratch() -> None:
    with pytest.raises(ValueError, match="scratch"):
        BlockPool(1)


def test_check_finds_a_lost_page() -> None:
    pool = BlockPool(4)
    (page,) = pool.allocate(1)
    pool.check({page: 1})
    with pytest.raises(AssertionError):
        pool.check({})
    with pytest.raises(AssertionError):
        pool.check({page: 2})


class BlockPoolMachine(RuleBasedStateMachine):
    """Random owners take, share and give back pages."""

    owned = Bundle("owned")

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(12)
        self.owners: Counter[int] = Counter()

    @rule(target=owned, n=st.integers(0, 5))
    def allocate(self, n: int) -> list[int]:
        if n > self.pool.free:
            with pytest.raises(OutOfPagesError):
                self.pool.allocate(n)
            return []
        pages = self.pool.allocate(n)
        assert len(set(pages)) == n
        assert not any(self.owners[page] for page in pages)
        assert SCRATCH_PAGE not in pages
        self.owners.update(pages)
        return pages

    @rule(target=owned, pages=owned)
    def share(self, pages: list[int]) -> list[int]:
        self.pool.share(pages)
        self.owners.update(pages)
        return pages

    @precondition(lambda self: self.owners.total())
    @rule(pages=consumes(owned))
    def release(self, pages: list[int]) -> None:
        self.pool.release(pages)
        self.owners.subtract(pages)

    @invariant()
    def proves_itself(self) -> None:
        self.pool.check(self.owners)
        assert self.pool.free + sum(count > 0 for count in self.owners.values()) + 1 == 12


TestBlockPool = BlockPoolMachine.TestCase
TestBlockPool.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)
