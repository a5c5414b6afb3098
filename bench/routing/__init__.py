"""What `bench/replay.py` and `bench/placed.py` share: traces, simulated engines, rivals."""
