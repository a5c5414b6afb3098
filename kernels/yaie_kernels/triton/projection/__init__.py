"""Linear layers with one to 128 rows of input."""
