"""Linear layers of one to 128 rows."""
