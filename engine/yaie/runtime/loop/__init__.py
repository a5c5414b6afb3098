"""The engine's loop: commands in, steps out, within a budget of time."""
