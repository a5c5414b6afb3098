"""Vectors, scores, ranks and classes."""
