"""Fixtures and settings for every folder of tests."""

import os

from hypothesis import HealthCheck, settings

pytest_plugins = ["cluster.fixtures"]

# A busy machine must not turn a property into a matter of time; CI draws the same examples always.
settings.register_profile(
    "yaie",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="CI" in os.environ,
)
settings.load_profile("yaie")
