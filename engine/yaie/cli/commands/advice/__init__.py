"""Commands that change nothing: they compute, explain and check."""
