"""Structured outputs: converts a request's fields to one grammar."""
