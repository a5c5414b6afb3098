"""Attention over a paged cache and over dense tensors, and writing the cache."""
