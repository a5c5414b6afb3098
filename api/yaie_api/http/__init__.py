"""Requests and answers of the HTTP APIs: OpenAI's, Anthropic's, pooling."""
