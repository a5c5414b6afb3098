"""Converts messages and texts to token ids and back: tokenizers, chat templates, their limits."""
