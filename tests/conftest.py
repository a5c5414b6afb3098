"""Fixtures and settings for every folder of tests."""

import logging
import os
from collections.abc import Iterator

import pytest
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


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """Undo what a command configured in this process: its handler outlives the stream."""
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    yield
    root.setLevel(level)
    root.handlers[:] = handlers
