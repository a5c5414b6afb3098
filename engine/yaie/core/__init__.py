"""The engine's decisions: pure Python, no torch, no clock, no I/O."""
