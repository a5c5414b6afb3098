"""A model's folder: where it comes from, what it holds, how its tensors are read."""
