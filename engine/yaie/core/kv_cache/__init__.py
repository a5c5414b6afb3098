"""Bookkeeping of the paged KV cache (paging: Kwon et al., 2023, arXiv 2309.06180), without tensors.

`block_pool` counts references to pages. `radix_cache` decides when to evict and how many pages,
`radix_tree` which. `core.scheduler.kv_cache_manager` decides where a sequence's pages are.
"""
