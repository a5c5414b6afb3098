"""Decides where a sequence's keys and values are: in its own pages, in a prompt that the outputs of
one request share, in host memory, or nowhere. Owns the shared prompts and the host pages, and uses
`RadixCache` for the rest. The `RequestLifecycle` owns it; other parts of the scheduler use it too.
"""

from typing import NamedTuple

from yaie.core.batch import PageCopy
from yaie.core.group import SequenceGroup
from yaie.core.kv_cache.host_pages import HostBlockTable, HostPages
from yaie.core.kv_cache.radix_cache import BlockTable, PrefixPending, RadixCache
from yaie.core.sequence import Sequence

SWAP_MIN_TOKENS = 64
"""Fewer positions than these are computed again: so few fit beside the decodes of any step, while a
swap costs copies in two steps, and host pages in between.
"""


class Allocation(NamedTuple):
    """Pages for a sequence. Its first `ready` positions are available once copies and swap_in are
    done.
    """

    table: BlockTable
    ready: int
    copies: tuple[PageCopy, ...] = ()
    swap_in: tuple[PageCopy, ...] = ()


class SwapOut(NamedTuple):
    """Copies of pages of `sequence` to host memory, which the next batch makes."""

    sequence: Sequence
    host: HostBlockTable
    copies: tuple[PageCopy, ...]


class KVCacheManager:
    """The pages of all sequences.

    `swap_min_tokens`: see `SWAP_MIN_TOKENS`. Without `share_prompts` there are no shared prompts:
    each output of a request computes the prompt itself.
    """

    def __init__(
        self,
        kv: RadixCache,
        host: HostPages,
        *,
        swap_min_tokens: int = SWAP_MIN_TOKENS,
        share_prompts: bool = True,
    ) -> None:
        self.kv = kv
        self.host = host
        self._share_prompts = share_prompts
        self._swap_min_tokens = swap_min_tokens
        self._shared_prompts: dict[SequenceGroup, BlockTable] = {}
        self._copied: list[BlockTable] = []
        self._closed: list[BlockTable] = []
        self._swap_out: list[SwapOut] = []
        self.swaps_out = 0
        self.swaps_in = 0

    # -- admission --------------------------------------------------------------------------

    def allocate(
        self, sequence: Sequence, group: SequenceGroup, *, reserve: int
    ) -> Allocation | PrefixPending | None:
        """Allocate pages for all known tokens of `sequence`; `reserve` pages must remain available
        to the others. None: there are not enough pages now.
        """
        shared_prompt = self._shared_prompts.get(group) if sequence is group.next else None
        if shared_prompt is not None:
            return self._fork(sequence, shared_prompt, reserve)
        outcome = self.kv.allocate(
            sequence.request.salt,
            sequence.key,
            reserve=reserve,
            most=sequence.reusable_tokens,
            wait=sequence.host is None,
        )
        if isinstance(outcome, BlockTable):
            return self._resumed(sequence, outcome)
        return outcome

    def _fork(
        self, sequence: Sequence, shared_prompt: BlockTable, reserve: int
    ) -> Allocation | None:
        forked = self.kv.fork(shared_prompt, reserve=reserve)
        if forked is None:
            return None
        table, copies = forked
        self._copied.append(shared_prompt)
        return Allocation(table, sequence.n_prompt - 1, copies)

    def _resumed(self, sequence: Sequence, table: BlockTable) -> Allocation:
        """Take positions that the cache does not have from host memory, if they are there."""
        host, cached = sequence.host, table.cached_tokens
        if host is None:
            return Allocation(table, cached)
        page_size = self.kv.page_size
        first = cached // page_size
        if cached >= host.n_tokens or first < host.first_page:  # not needed, or with a gap before
            self.forget(sequence)
            return Allocation(table, cached)
        sources = host.pages[first - host.first_page :]
        copies = tuple(
            PageCopy(group, source, pages[first + offset])
            for group, pages in enumerate(table.pages)
            for offset, source in enumerate(sources)
        )
        self.swaps_in += 1
        return Allocation(table, host.n_tokens, swap_in=copies)

    def extend(self, sequence: Sequence) -> tuple[int, ...] | None:
        """Append one page in each KV cache group. None: no page is available."""
        return self.kv.extend(sequence.owned_table)

    def commit(self, sequence: Sequence) -> None:
        """Cache the pages of a computed chunk, and free the host pages, which the step has copied
        back.
        """
        self.kv.commit(sequence.owned_table, sequence.committed)
        if sequence.host is not None:
            self.forget(sequence)

    # -- release ----------------------------------------------------------------------------

    def release(self, sequence: Sequence) -> None:
        """Release the pages; whole pages of computed tokens stay cached."""
        self.kv.release(sequence.owned_table, sequence.computed_key)

    def discard(self, sequence: Sequence) -> None:
        """Release the pages without caching them: they may hold values that are not finite."""
        self.kv.discard(sequence.owned_table)

    def preempt(self, sequence: Sequence) -> None:
        """Release the pages. Keep their contents in host memory if that costs less than computing
        again.
        """
        if sequence.host is None:
            self._keep(sequence)
        self.release(sequence)

    def forget(self, sequence: Sequence) -> None:
        """Free the host pages of `sequence`, if any."""
        host, sequence.host = sequence.host, None
        if host is not None:
            self.host.release(host)
            self._swap_out = [swap for swap in self._swap_out if swap.host is not host]

    def _keep(self, sequence: Sequence) -> None:
        table, n_tokens = sequence.owned_table, sequence.committed
        first = self.kv.n_shared(table)
        n_pages = -(-n_tokens // self.kv.page_size) - first
        worth = n_tokens - first * self.kv.page_size >= self._swap_min_tokens
        if not worth or n_pages > self.host.free or sequence.reusable_tokens < n_tokens:
            return
        host = HostBlockTable(first, n_tokens, self.host.allocate(n_pages))
        copies = tuple(
            PageCopy(group, pages[first + offset], target)
            for group, pages in enumerate(table.pages)
            for offset, target in enumerate(host.pages)
        )
        sequence.host = host
        self._swap_out.append(SwapOut(sequence, host, copies))
        self.swaps_out += 1

    def seal(self) -> list[SwapOut]:
        """Complete a batch: returns the copies to host memory that it has to make."""
        for shared_prompt in self._closed:
            self.kv.release(shared_prompt, b"")
        self._copied, self._closed = [], []
        taken, self._swap_out = self._swap_out, []
        return taken

    # -- shared prompts --------------------------------------------------------------

    def open(self, group: SequenceGroup, sequence: Sequence) -> None:
        """Let the other outputs of `group` share its prompt, which `sequence` has computed."""
        if self._share_prompts:
            self._shared_prompts[group] = self.kv.shared_prompt(
                sequence.owned_table, sequence.n_prompt
            )

    def has_shared_prompt(self, group: SequenceGroup) -> bool:
        return group in self._shared_prompts

    def close(self, group: SequenceGroup) -> None:
        """Release the shared prompt of `group`, which no output will need any more.

        If the batch under construction copies from its pages, they are released when that batch is
        complete. Otherwise another sequence could get them in the same batch, and a swap-in, which
        comes before the copies, would overwrite them.
        """
        if (shared_prompt := self._shared_prompts.pop(group, None)) is None:
            return
        if any(shared_prompt is copied for copied in self._copied):
            self._closed.append(shared_prompt)
        else:
            self.kv.release(shared_prompt, b"")

    def reclaim(self) -> bool:
        """Release the newest shared prompt to get its pages; outputs that have not started compute
        the prompt again. False: there is none.
        """
        if not self._shared_prompts:
            return False
        self.close(next(reversed(self._shared_prompts)))
        return True

    def check(self, running: list[Sequence], live: list[Sequence]) -> None:
        """Prove that no page is lost; raises AssertionError."""
        tables = [sequence.owned_table for sequence in running]
        self.kv.check([*tables, *self._shared_prompts.values(), *self._closed])
        self.host.check([sequence.host for sequence in live if sequence.host is not None])
        if any(group.ended or group.next is None for group in self._shared_prompts):
            raise AssertionError("a shared prompt is kept for nobody")
        if any(swap.sequence.host is not swap.host for swap in self._swap_out):
            raise AssertionError("a swap to the host has lost its sequence")
