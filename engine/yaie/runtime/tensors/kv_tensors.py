"""The KV cache's memory: a key and a value page pool for each layer, and copies between pages.

The scheduler decides which sequence owns a page. Pages of preempted sequences may be kept in host
memory: there, a page is one row with all layers, so that a swap needs one transfer per page.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch

import yaie_kernels as ops
from yaie.core.batch import PageCopy
from yaie.core.kv_cache.spec import KVCacheGroup, KVSpec
from yaie.layers.interfaces import LayerCache
from yaie.layers.options import TensorOptions

STAGING_BYTES = 2**26
"""Maximum size of the device buffer through which swapped pages pass."""


def kv_spec(caches: Sequence[LayerCache], page_size: int, dtype: torch.dtype) -> KVSpec:
    """One group with all layers (a sliding window only masks; it frees no pages yet)."""
    elements = sum(cache.heads * (cache.key_size + cache.value_size) for cache in caches)
    latent = all(cache.value_size == 0 for cache in caches)
    group = KVCacheGroup(
        "latent" if latent else "full", tuple(range(len(caches))), elements * dtype.itemsize
    )
    return KVSpec(groups=(group,), page_size=page_size)


class KVTensors:
    """`caches[layer]` = (keys, values), each [pages, page_size, heads, size of a key or value].

    A layer whose `value_size` is 0 has one pool: its values are its keys. The pools are zeroed,
    because padding rows read the scratch page 0 before it is written.

    Args:
        layers: what each layer stores per token.
        num_pages: pages on the device, the scratch page included.
        page_size: tokens in a page.
        options: device and dtype of the pools.
        host_pages: pages in host memory, for swaps.

    """

    def __init__(
        self,
        layers: Sequence[LayerCache],
        num_pages: int,
        page_size: int,
        options: TensorOptions,
        *,
        host_pages: int = 0,
    ) -> None:
        self.num_pages = num_pages
        self.page_size = page_size
        self.caches = tuple(self._layer(layer, options) for layer in layers)
        self.pools = tuple(
            pool
            for layer, (keys, values) in zip(layers, self.caches, strict=True)
            for pool in ((keys, values) if layer.value_size else (keys,))
        )
        page_elements = sum(pool[0].numel() for pool in self.pools)
        self.host = torch.empty(
            (host_pages, page_elements),
            dtype=options.dtype,
            pin_memory=options.device.type == "cuda" and host_pages > 0,
        )

    def _layer(
        self, layer: LayerCache, options: TensorOptions
    ) -> tuple[torch.Tensor, torch.Tensor]:
        shape = (self.num_pages, self.page_size, layer.heads)
        keys = options.zeros(*shape, layer.key_size)
        return keys, options.zeros(*shape, layer.value_size) if layer.value_size else keys

    def copy(self, copies: Sequence[PageCopy]) -> None:
        """Copy whole pages within every pool, with one call per pool."""
        source, target = self._pages(copies)
        for pool in self.pools:
            ops.copy_pages(pool, source, target)

    def swap_out(self, copies: Sequence[PageCopy]) -> None:
        """Copy pages from the device (`source`) to the host (`target`), in stream order."""
        for piece in self._pieces(copies):
            source, _ = self._pages(piece)
            rows = torch.cat([pool.index_select(0, source).flatten(1) for pool in self.pools], 1)
            for first, last, page in _runs([copy.target for copy in piece]):
                self.host[page : page + last - first].copy_(rows[first:last], non_blocking=True)

    def swap_in(self, copies: Sequence[PageCopy]) -> None:
        """Copy pages from the host (`source`) to the device (`target`), in stream order."""
        for piece in self._pieces(copies):
            _, target = self._pages(piece)
            rows = self.host.new_empty((len(piece), self.host.shape[1]), device=target.device)
            for first, last, page in _runs([copy.source for copy in piece]):
                rows[first:last].copy_(self.host[page : page + last - first], non_blocking=True)
            start = 0
            for pool in self.pools:
                size = pool[0].numel()
                pool.index_copy_(0, target, rows[:, start : start + size].view(-1, *pool.shape[1:]))
                start += size

    def _pages(self, copies: Sequence[PageCopy]) -> tuple[torch.Tensor, torch.Tensor]:
        """Page numbers (source, target) on the device, uploaded in one asynchronous copy."""
        pages = torch.tensor([[copy.source, copy.target] for copy in copies]).T.contiguous()
        device = self.pools[0].device
        if device.type == "cuda":
            pages = pages.pin_memory().to(device, non_blocking=True)
        return pages[0], pages[1]

    def _pieces(self, copies: Sequence[PageCopy]) -> list[Sequence[PageCopy]]:
        page_bytes = self.host.shape[1] * self.host.itemsize
        size = max(1, STAGING_BYTES // page_bytes)
        return [copies[start : start + size] for start in range(0, len(copies), size)]


def _runs(pages: Sequence[int]) -> list[tuple[int, int, int]]:
    """Split into runs of consecutive pages: (first index, one past the last, first page)."""
    breaks = [i for i, (a, b) in enumerate(pairwise(pages), start=1) if b != a + 1]
    starts = [0, *breaks]
    return [
        (first, last, pages[first])
        for first, last in zip(starts, [*breaks, len(pages)], strict=True)
    ]
