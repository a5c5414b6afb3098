"""A model's folder: its source, its files, and the reading of its tensors."""
