"""Continues a client's stream on another engine when its own has died."""
