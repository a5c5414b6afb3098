"""Anthropic's messages API."""
