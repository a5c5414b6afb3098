"""The OpenAI server process: HTTP, tokenizer, detokenizer. Imports no torch."""
