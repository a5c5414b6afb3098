"""OpenAI batch files."""
