"""Reads and checks a model's config.json; the result is plain data, without torch."""
