"""The paged KV cache as decisions.

Reference counts of pages: `block_pool`. Eviction: `radix_cache` decides when and how many pages,
`radix_tree` which. Where a sequence has its pages: `core.scheduler.kv_cache_manager`.
"""
