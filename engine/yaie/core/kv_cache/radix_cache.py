"""Pages and radix nodes, both owned here: sequences ask by verbs and see block tables only.

    admit ──▶ BlockTable ──▶ extend* ──▶ commit* ──▶ release   finished, aborted or preempted
                  │                         └─▶ discard        its logits were not finite
                  └─▶ shared_prompt ──▶ fork*                  outputs of a prompt share its pages

Pages enter the tree when the step that wrote them is committed, never when it is launched.
A table owns each of its pages once; the tree owns its pages once more. In each KV cache group
free + cached + held + scratch = total. (The last page of a shared prompt may be held and cached:
the output that computed it continues in that page, and may fill it and end.)
"""

from collections import Counter
from dataclasses import dataclass

from yaie.core.batch import PageCopy
from yaie.core.kv_cache.block_pool import BlockPool
from yaie.core.kv_cache.radix_tree import TOKEN_BYTES, Node, Pages, RadixTree, common_pages
from yaie.core.kv_cache.spec import KVSpec


class BlockTable:
    """The pages of one admitted sequence. Only `RadixCache` changes it.

    `pages[g]`: block table in KV cache group g. `key`: the packed tokens known at admission.
    `cached_tokens`: leading positions whose keys and values were found in the tree.
    """

    __slots__ = (
        "cached_tokens",
        "capacity",
        "key",
        "n_inserted",
        "node",
        "pages",
        "pending_prefix",
    )

    def __init__(self, key: bytes, node: Node, pages: Pages, cached_tokens: int) -> None:
        self.key = key
        self.node = node
        self.pages = pages
        self.cached_tokens = cached_tokens
        self.capacity = 0
        self.n_inserted = 0
        self.pending_prefix: tuple[Node, bytes] | None = None


@dataclass(frozen=True, slots=True)
class PrefixPending:
    """Somebody is computing a prefix that this prompt needs: wait until `tokens` are committed."""

    primary: BlockTable
    tokens: int


class RadixCache:
    """Pages for all sequences. `num_pages`: pages of each KV cache group, scratch included."""

    def __init__(self, spec: KVSpec, num_pages: int, *, enable_prefix_caching: bool = True) -> None:
        self.page_size = spec.page_size
        self.num_pages = num_pages
        self._page_bytes = spec.page_size * TOKEN_BYTES
        self._caching = enable_prefix_caching
        self._pools = tuple(BlockPool(num_pages) for _ in spec.groups)
        self._tree = RadixTree(spec.page_size, len(spec.groups))
        self._pending_prefixes: dict[tuple[Node, bytes], BlockTable] = {}

    @property
    def capacity_tokens(self) -> int:
        """Longest sequence that fits when it is alone."""
        return (self.num_pages - 1) * self.page_size

    @property
    def free_pages(self) -> int:
        return self._pools[0].free

    @property
    def cached_pages(self) -> int:
        """Pages that hold a prefix nobody uses now; they are evicted when pages run out."""
        return self._tree.cached_pages

    def lookup(self, salt: str, key: bytes) -> int:
        """Tokens of a packed prompt that the cache would save now. Changes nothing."""
        return self._tree.lookup(salt, key, self._reusable(key)) * self.page_size

    def admit(
        self, salt: str, key: bytes, *, reserve: int, most: int | None = None, wait: bool = True
    ) -> BlockTable | PrefixPending | None:
        """Give a sequence its cached prefix and pages for all its known tokens (packed in `key`).

        `reserve` pages must stay obtainable for the others. At most `most` leading tokens are taken
        from the cache. Without `wait` the answer is never `PrefixPending`. None: no room now.
        """
        reusable = self._reusable(key)
        if most is not None:
            reusable = min(reusable, most // self.page_size)
        node, n_cached = self._tree.hold(salt, key, reusable)
        shared = self._pending_owner(node, key, n_cached, reusable) if wait else None
        outcome = shared or self._allocate(node, key, n_cached, reserve)
        if not isinstance(outcome, BlockTable):
            self._tree.release(node)
        return outcome

    def shared_prompt(self, table: BlockTable, n_tokens: int) -> BlockTable:
        """One more owner of the pages that hold the first `n_tokens` positions of `table`, all of
        them committed. It lives until it is released, whatever becomes of `table`.
        """
        n_pages = -(-n_tokens // self.page_size)
        pages = tuple(group[:n_pages] for group in table.pages)
        shared_prompt = self._sharing(table.key[: n_tokens * TOKEN_BYTES], table.node, pages, 0)
        shared_prompt.n_inserted = table.n_inserted
        return shared_prompt

    def fork(
        self, shared_prompt: BlockTable, *, reserve: int
    ) -> tuple[BlockTable, tuple[PageCopy, ...]] | None:
        """A sequence with the shared prompt's tokens. It computes the last token itself: it shares
        the pages before that token's and gets a copy of what that page holds already.
        """
        if self._tree.cached_pages + self.free_pages < 1 + reserve or not self._obtain(1):
            return None
        n_ready = len(shared_prompt.key) // TOKEN_BYTES - 1
        whole = n_ready // self.page_size
        shared = tuple(group[:whole] for group in shared_prompt.pages)
        table = self._sharing(shared_prompt.key, shared_prompt.node, shared, whole * self.page_size)
        table.n_inserted = shared_prompt.n_inserted
        new = self.extend(table)
        if new is None:
            raise AssertionError("a page that was obtained is gone")
        if n_ready % self.page_size == 0:
            return table, ()
        copies = (
            PageCopy(group, pages[whole], page)
            for group, (pages, page) in enumerate(zip(shared_prompt.pages, new, strict=True))
        )
        return table, tuple(copies)

    def n_shared(self, table: BlockTable) -> int:
        """Leading pages of `table` that stay when it goes, because others use them too."""
        return min(self._tree.n_shared(table.node), table.n_inserted)

    def forget_cached(self) -> None:
        """Free every page that only the cache owns."""
        self._free(self._tree.evict(self._tree.cached_pages))

    def extend(self, table: BlockTable) -> tuple[int, ...] | None:
        """Append one page in each group to `table`: the new pages by group, or None."""
        if not self._obtain(1):
            return None
        new = tuple(pool.allocate(1)[0] for pool in self._pools)
        for pages, page in zip(table.pages, new, strict=True):
            pages.append(page)
        table.capacity += self.page_size
        return new

    def commit(self, table: BlockTable, n_tokens: int) -> None:
        """The first `n_tokens` positions are computed: others may use their whole pages."""
        if self._caching:
            self._insert(table, table.key[: n_tokens * TOKEN_BYTES])
            self._move_pending_prefix(table)

    def release(self, table: BlockTable, key: bytes) -> None:
        """Give the pages back; whole pages of the computed tokens packed in `key` stay cached."""
        if self._caching:
            self._insert(table, key)
        self._drop(table)

    def discard(self, table: BlockTable) -> None:
        """Give the pages back and forget what nobody else uses of them: they may be poisoned."""
        node = table.node
        self._drop(table)
        self._free(self._tree.forget(node))

    # -- inside -----------------------------------------------------------------------------

    def _reusable(self, key: bytes) -> int:
        """Pages that may come from the cache: the last token is always computed."""
        return (len(key) - TOKEN_BYTES) // self._page_bytes if self._caching else 0

    def _sharing(self, key: bytes, node: Node, pages: Pages, cached_tokens: int) -> BlockTable:
        """A table that holds `node` and owns `pages` beside those who own them already."""
        self._tree.hold_again(node)
        for pool, group in zip(self._pools, pages, strict=True):
            pool.share(group)
        table = BlockTable(key, node, pages, cached_tokens)
        table.capacity = len(pages[0]) * self.page_size
        return table

    def _pending_owner(
        self, node: Node, key: bytes, n_cached: int, reusable: int
    ) -> PrefixPending | None:
        if n_cached >= reusable:
            return None
        primary = self._pending_prefixes.get((node, self._page_key(key, n_cached)))
        if primary is None:
            return None
        shared = min(common_pages(primary.key, key, self._page_bytes), reusable)
        return PrefixPending(primary, shared * self.page_size)

    def _allocate(self, node: Node, key: bytes, n_cached: int, reserve: int) -> BlockTable | None:
        n_new = -(-len(key) // self._page_bytes) - n_cached
        if self._tree.cached_pages + self.free_pages < n_new + reserve or not self._obtain(n_new):
            return None
        pages = self._tree.pages(node)
        for pool, group in zip(self._pools, pages, strict=True):
            pool.share(group)
            group.extend(pool.allocate(n_new))
        table = BlockTable(key, node, pages, n_cached * self.page_size)
        table.n_inserted = n_cached
        table.capacity = (n_cached + n_new) * self.page_size
        self._move_pending_prefix(table)
        return table

    def _obtain(self, n_pages: int) -> bool:
        """Make sure that `n_pages` are free in every group, evicting cached ones if need be. One
        that a shared prompt holds too does not become free by that.
        """
        while (missing := n_pages - self.free_pages) > 0:
            if missing > self._tree.cached_pages:
                return False
            self._free(self._tree.evict(missing))
        return True

    def _free(self, pages: Pages) -> None:
        for pool, group in zip(self._pools, pages, strict=True):
            pool.release(group)

    def _insert(self, table: BlockTable, key: bytes) -> None:
        """Put the whole pages of `key` that are not in the tree yet into it."""
        start, end = table.n_inserted, len(key) // self._page_bytes
        if end <= start:
            return
        new = tuple(group[start:end] for group in table.pages)
        tail = key[start * self._page_bytes : end * self._page_bytes]
        table.node, known = self._tree.insert(table.node, tail, new)
        table.n_inserted = end
        for pool, group in zip(self._pools, new, strict=True):
            pool.share(group[known:])

    def _drop(self, table: BlockTable) -> None:
        self._clear_pending_prefix(table)
        self._tree.release(table.node)
        self._free(table.pages)

    def _move_pending_prefix(self, table: BlockTable) -> None:
        """Announce the next page that `table` will compute, so that others can wait for it."""
        self._clear_pending_prefix(table)
        page = self._page_key(table.key, table.n_inserted)
        if len(page) == self._page_bytes and self._caching:
            table.pending_prefix = (table.node, page)
            self._pending_prefixes.setdefault(table.pending_prefix, table)

    def _clear_pending_prefix(self, table: BlockTable) -> None:
        if (
            table.pending_prefix is not None
            and self._pending_prefixes.get(table.pending_prefix) is table
        ):
            del self._pending_prefixes[table.pending_prefix]
        table.pending_prefix = None

    def _page_key(self, key: bytes, index: int) -> bytes:
        return key[index * self._page_bytes : (index + 1) * self._page_bytes]

    def check(self, tables: list[BlockTable]) -> None:
        """Prove the invariants given every live table; raises AssertionError."""
        nodes = self._tree.check()
        for index, pool in enumerate(self._pools):
            owners = Counter(page for node in nodes for page in node[index])
            owners.update(page for table in tables for page in table.pages[index])
            pool.check(owners)
            self._check_sum(index, nodes, tables)
        for table in tables:
            if table.capacity != len(table.pages[0]) * self.page_size:
                raise AssertionError("a table's capacity differs from its pages")
        if not set(map(id, self._pending_prefixes.values())) <= set(map(id, tables)):
            raise AssertionError("a pending prefix belongs to no live table")

    def _check_sum(self, index: int, nodes: list[Pages], tables: list[BlockTable]) -> None:
        """Prove that free + cached + held + scratch = total, held being counted from its users."""
        used = {page for node in nodes for page in node[index]}
        used.update(page for table in tables for page in table.pages[index])
        total = self._pools[index].free + len(used) + 1
        if total != self.num_pages:
            raise AssertionError(f"free + cached + held + scratch is {total}, not {self.num_pages}")
