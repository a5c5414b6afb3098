"""Decides how many engines a model has, from what its routers and engines tell."""
