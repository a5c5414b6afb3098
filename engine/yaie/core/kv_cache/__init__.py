"""The paged KV cache as decisions: pages, the radix tree over them, host pages."""
