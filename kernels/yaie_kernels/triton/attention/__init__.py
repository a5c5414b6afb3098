"""Paged attention for prompts, decodes and latent caches, and writes into the cache."""
