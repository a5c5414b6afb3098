"""Pages in host memory, which keep the computed keys and values of preempted sequences.

A host page holds one page of every KV cache group; all groups use the same page numbers.
"""


class HostBlockTable:
    """Host pages of one sequence. `pages[i]` holds page `first_page + i` of its block table; the
    pages before `first_page` are expected in the prefix cache. `n_tokens`: number of positions up
    to the end of the saved ones. Compared by identity.
    """

    __slots__ = ("first_page", "n_tokens", "pages")

    def __init__(self, first_page: int, n_tokens: int, pages: list[int]) -> None:
        self.first_page = first_page
        self.n_tokens = n_tokens
        self.pages = pages


class HostPages:
    """`total` pages, numbered from 0. Each is free or part of one `HostBlockTable`."""

    __slots__ = ("_free", "total")

    def __init__(self, total: int) -> None:
        self.total = total
        self._free = list(range(total - 1, -1, -1))

    @property
    def free(self) -> int:
        return len(self._free)

    def allocate(self, n: int) -> list[int]:
        """Take `n` pages. The caller has checked that they are free.

        Raises:
            AssertionError: they are not.

        """
        if n > len(self._free):
            raise AssertionError(f"{n} host pages asked, {len(self._free)} free")
        return [self._free.pop() for _ in range(n)]

    def release(self, copy: HostBlockTable) -> None:
        self._free.extend(copy.pages)

    def check(self, copies: list[HostBlockTable]) -> None:
        """Prove that free + held = total, each page once; raises AssertionError."""
        held = [page for copy in copies for page in copy.pages]
        if sorted(held + self._free) != list(range(self.total)):
            raise AssertionError(f"host pages {held} held and {self._free} free differ from all")
