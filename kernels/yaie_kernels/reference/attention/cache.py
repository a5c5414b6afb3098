"""Writes into the paged KV cache, laid out [pages, page_size, kv_heads, head_dim]."""

from torch import Tensor


def write_kv(k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, slots: Tensor) -> None:
    k_cache.flatten(0, 1).index_copy_(0, slots, k)
    v_cache.flatten(0, 1).index_copy_(0, slots, v)


def copy_pages(cache: Tensor, source: Tensor, target: Tensor) -> None:
    cache.index_copy_(0, target, cache.index_select(0, source))


def swap_pages(source_cache: Tensor, target_cache: Tensor, source: Tensor, target: Tensor) -> None:
    pages = source_cache.index_select(0, source.to(source_cache.device))
    target_cache.index_copy_(0, target.to(target_cache.device), pages.to(target_cache.device))
