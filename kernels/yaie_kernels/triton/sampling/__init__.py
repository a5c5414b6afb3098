"""Logits to tokens without a sort."""
