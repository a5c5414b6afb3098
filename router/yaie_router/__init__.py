"""The router: sends each request to the engine that already holds its prefix."""
