"""The engine loop, the commands that it receives, and the token budget of its steps."""
