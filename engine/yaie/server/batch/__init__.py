"""Answers OpenAI batch files without a server."""
