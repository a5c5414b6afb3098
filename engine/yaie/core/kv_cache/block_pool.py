"""The pages of one KV cache group: the free list, and the reference counts of the other pages.

A page is free (count 0) or owned by sequences and by the radix tree; each owner counts once. Page 0
is the scratch page: padding rows write to it, and it is never allocated. Only `RadixCache` uses
this class.
"""

from collections.abc import Iterable, Mapping

SCRATCH_PAGE = 0


class OutOfPagesError(Exception):
    """More pages were requested than are free. Callers evict or preempt first."""


class BlockPool:
    """`total` pages, numbered from 0. Page 0 is the scratch page.

    Raises:
        ValueError: `total` is less than 2.

    """

    __slots__ = ("_free", "_owners", "total")

    def __init__(self, total: int) -> None:
        if total < 2:
            raise ValueError(f"a pool needs a scratch page and at least one more, got {total}")
        self.total = total
        self._owners = [0] * total
        self._owners[SCRATCH_PAGE] = 1
        self._free = list(range(total - 1, SCRATCH_PAGE, -1))

    @property
    def free(self) -> int:
        """Number of pages without an owner."""
        return len(self._free)

    def allocate(self, n: int) -> list[int]:
        """Take `n` free pages; each gets its first owner.

        Raises:
            OutOfPagesError: fewer pages are free; nothing changed.

        """
        if n > len(self._free):
            raise OutOfPagesError(f"{n} pages asked, {len(self._free)} free")
        cut = len(self._free) - n
        pages = self._free[cut:]
        del self._free[cut:]
        for page in pages:
            self._owners[page] = 1
        return pages

    def share(self, pages: Iterable[int]) -> None:
        """Add an owner to pages that already have one.

        Raises:
            ValueError: a page has no owner, or is the scratch page.

        """
        owners = self._owners
        for page in pages:
            if page == SCRATCH_PAGE or not owners[page]:
                raise ValueError(f"page {page} has no owner to share it")
            owners[page] += 1

    def release(self, pages: Iterable[int]) -> None:
        """Remove one owner from each page. A page without owners is free again.

        Raises:
            ValueError: a page has no owner, or is the scratch page.

        """
        owners = self._owners
        for page in pages:
            if page == SCRATCH_PAGE or not owners[page]:
                raise ValueError(f"page {page} has no owner to release it")
            owners[page] -= 1
            if not owners[page]:
                self._free.append(page)

    def check(self, owners: Mapping[int, int]) -> None:
        """Compare the counts with `owners`, the caller's count for each page; raises
        AssertionError.
        """
        expected = [owners.get(page, 0) for page in range(self.total)]
        expected[SCRATCH_PAGE] += 1
        if self._owners != expected:
            raise AssertionError(f"owner counts {self._owners} differ from {expected}")
        unowned = [page for page, count in enumerate(expected) if not count]
        if sorted(self._free) != unowned:
            raise AssertionError(f"free list {sorted(self._free)} differs from {unowned}")
