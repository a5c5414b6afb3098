"""Paged attention: prompts, decodes, latent caches, and writing the cache."""
