"""Request and response types of the HTTP APIs: OpenAI's, Anthropic's, pooling."""
