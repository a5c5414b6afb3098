"""Runs what the scheduler decides: the engine loop, the model runner, device-resident state."""
