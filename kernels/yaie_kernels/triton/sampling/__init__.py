"""Draws tokens from logits without sorting them."""
