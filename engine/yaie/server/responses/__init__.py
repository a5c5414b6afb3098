"""OpenAI's responses API: its requests, its answers, its stored responses."""
