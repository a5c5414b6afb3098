"""Runs what the core decides: the loop, the model runner, device-resident state."""
