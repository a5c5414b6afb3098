"""The prefix cache: owns the page pools and the radix tree. Callers see block tables only.

    allocate ──▶ BlockTable ──▶ extend* ──▶ commit* ──▶ release   finished, aborted or preempted
                  │                         └─▶ discard        its logits were not finite
                  └─▶ shared_prompt ──▶ fork*                  outputs of a prompt share its pages

Pages enter the tree when the step that wrote them is committed, never when it is launched. A table
owns each of its pages once; the tree owns its pages once more. In each KV cache group free + cached
+ held + scratch = total. (The last page of a shared prompt may be held and cached: the output that
computed the prompt continues in that page, and may fill the page and end.)
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from yaie.core.batch import PageCopy
from yaie.core.kv_cache.block_pool import BlockPool
from yaie.core.kv_cache.prefix_keys import PrefixKeyIndex
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
    """Another sequence is computing a prefix of this prompt: wait until it has committed `tokens`
    tokens. `primary`: the block table of that sequence.
    """

    primary: BlockTable
    tokens: int


class RadixCache:
    """Allocates, shares and evicts the pages of all sequences. `num_pages`: pages of each KV cache
    group, scratch included. `prefix_keys`: which keys of requests are cached.
    """

    def __init__(self, spec: KVSpec, num_pages: int, *, enable_prefix_caching: bool = True) -> None:
        self.page_size = spec.page_size
        self.num_pages = num_pages
        self._page_bytes = spec.page_size * TOKEN_BYTES
        self._caching = enable_prefix_caching
        self._pools = tuple(BlockPool(num_pages) for _ in spec.groups)
        self._tree = RadixTree(spec.page_size, len(spec.groups))
        self._pending_prefixes: dict[tuple[Node, bytes], BlockTable] = {}
        self.prefix_keys = PrefixKeyIndex(spec.page_size)

    @property
    def capacity_tokens(self) -> int:
        """Longest sequence, in tokens, that fits if no other sequence runs."""
        return (self.num_pages - 1) * self.page_size

    @property
    def free_pages(self) -> int:
        return self._pools[0].free

    @property
    def cached_pages(self) -> int:
        """Number of pages whose prefix no sequence uses; they are evicted when pages run out."""
        return self._tree.cached_pages

    def lookup(self, salt: str, key: bytes) -> int:
        """Number of leading tokens of a packed prompt that are cached now. Changes nothing."""
        return self._tree.lookup(salt, key, self._reusable(key)) * self.page_size

    def allocate(
        self, salt: str, key: bytes, *, reserve: int, most: int | None = None, wait: bool = True
    ) -> BlockTable | PrefixPending | None:
        """Give a sequence its cached prefix and pages for all its known tokens (packed in `key`).

        `reserve` pages must remain free or evictable for other sequences. At most `most` leading
        tokens are taken from the cache. With `wait` False, the result is never `PrefixPending`.
        None: there are not enough pages now.
        """
        reusable = self._reusable(key)
        if most is not None:
            reusable = min(reusable, most // self.page_size)
        node, n_cached = self._tree.hold(salt, key, reusable)
        shared = self._pending_owner(node, key, n_cached, reusable) if wait else None
        outcome = shared or self._new_table(node, key, n_cached, reserve)
        if not isinstance(outcome, BlockTable):
            self._tree.release(node)
        return outcome

    def shared_prompt(self, table: BlockTable, n_tokens: int) -> BlockTable:
        """Add an owner to the pages with the first `n_tokens` positions of `table`, which are all
        committed. The returned table stays valid until it is released, even if `table` is released
        before.
        """
        n_pages = -(-n_tokens // self.page_size)
        pages = tuple(group[:n_pages] for group in table.pages)
        shared_prompt = self._sharing(table.key[: n_tokens * TOKEN_BYTES], table.node, pages, 0)
        shared_prompt.n_inserted = table.n_inserted
        return shared_prompt

    def fork(
        self, shared_prompt: BlockTable, *, reserve: int
    ) -> tuple[BlockTable, tuple[PageCopy, ...]] | None:
        """Make the block table of another output of a shared prompt, and the page copies that it
        needs. The output computes the prompt's last token itself: it shares the pages before that
        token's page and gets a copy of that page. None: there are not enough pages now.
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
        """Number of leading pages of `table` that other sequences use too, and which therefore stay
        when `table` is released.
        """
        return min(self._tree.n_shared(table.node), table.n_inserted)

    def tie(self, salt: str, key: bytes, keys: Iterable[tuple[int, int]]) -> None:
        """Tie prefix keys to the pages that are cached for the packed tokens `key`. `keys`: (prefix
        key, number of those tokens that it covers).
        """
        self.prefix_keys.tie(self._tree.find(salt, key), keys)

    def forget_cached(self) -> None:
        """Evict every page that no sequence uses."""
        self._evicted(self._tree.evict(self._tree.cached_pages))

    def extend(self, table: BlockTable) -> tuple[int, ...] | None:
        """Append one page in each group to `table`. Returns the new pages by group; None: no page
        is free or evictable.
        """
        if not self._obtain(1):
            return None
        new = tuple(pool.allocate(1)[0] for pool in self._pools)
        for pages, page in zip(table.pages, new, strict=True):
            pages.append(page)
        table.capacity += self.page_size
        return new

    def commit(self, table: BlockTable, n_tokens: int) -> None:
        """Insert the whole pages of the first `n_tokens` positions, which are computed, into the
        tree, so that other sequences can use them.
        """
        if self._caching:
            self._insert(table, table.key[: n_tokens * TOKEN_BYTES])
            self._move_pending_prefix(table)

    def release(self, table: BlockTable, key: bytes) -> None:
        """Release the pages. The whole pages of the computed tokens packed in `key` stay cached."""
        if self._caching:
            self._insert(table, key)
        self._drop(table)

    def discard(self, table: BlockTable) -> None:
        """Release the pages and remove those from the tree that no other sequence uses: they may
        hold values that are not finite.
        """
        node = table.node
        self._drop(table)
        self._evicted(self._tree.forget(node))

    # -- inside -----------------------------------------------------------------------------

    def _reusable(self, key: bytes) -> int:
        """Number of pages that may come from the cache. The last token is always computed."""
        return (len(key) - TOKEN_BYTES) // self._page_bytes if self._caching else 0

    def _sharing(self, key: bytes, node: Node, pages: Pages, cached_tokens: int) -> BlockTable:
        """Make a table that holds `node` and is one more owner of `pages`."""
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

    def _new_table(self, node: Node, key: bytes, n_cached: int, reserve: int) -> BlockTable | None:
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
        """Make sure that `n_pages` are free in every group; evict cached pages if necessary. An
        evicted page that a shared prompt owns too does not become free.
        """
        while (missing := n_pages - self.free_pages) > 0:
            if missing > self._tree.cached_pages:
                return False
            self._evicted(self._tree.evict(missing))
        return True

    def _evicted(self, pages: Pages) -> None:
        """Let go of pages that have left the tree."""
        self.prefix_keys.forget(pages[0])
        self._free(pages)

    def _free(self, pages: Pages) -> None:
        for pool, group in zip(self._pools, pages, strict=True):
            pool.release(group)

    def _insert(self, table: BlockTable, key: bytes) -> None:
        """Insert the whole pages of `key` that the tree does not have yet."""
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
        """Register the next page that `table` will compute, so that other sequences can wait for
        it.
        """
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
        """Prove the invariants, given all live tables; raises AssertionError."""
        nodes = self._tree.check()
        self.prefix_keys.check(self._tree.depths())
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
        """Prove that free + cached + held + scratch = total; cached and held pages are counted from
        their owners.
        """
        used = {page for node in nodes for page in node[index]}
        used.update(page for table in tables for page in table.pages[index])
        total = self._pools[index].free + len(used) + 1
        if total != self.num_pages:
            raise AssertionError(f"free + cached + held + scratch is {total}, not {self.num_pages}")
