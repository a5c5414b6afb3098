"""The HTTP process: HTTP APIs, tokenizer, detokenizer. It does not import torch."""
