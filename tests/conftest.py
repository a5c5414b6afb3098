"""Fixtures that every folder of tests may ask for."""

pytest_plugins = ["cluster.fixtures"]
