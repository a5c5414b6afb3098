"""Scheduling and the bookkeeping of the KV cache: pure Python, no torch, no clock, no I/O."""
