"""Brings an engine's answer to its client."""
