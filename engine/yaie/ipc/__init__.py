"""Messages between HTTP processes and the engine process."""
