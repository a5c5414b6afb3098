"""What to do when this machine lacks something that a cluster test needs.

A developer without Go sees a skip that names what is missing. Continuous integration sets
YAIE_REQUIRE_CLUSTER=1, and then the same absence is a failure: there no test may vanish silently.
"""

import os
from typing import NoReturn

import pytest

REQUIRE = "YAIE_REQUIRE_CLUSTER"


class MissingError(RuntimeError):
    """Something outside the project is absent; the message names it and how to get it."""


def give_up(missing: MissingError) -> NoReturn:
    """Skip the test, or fail it where the cluster is required."""
    if os.environ.get(REQUIRE) == "1":
        pytest.fail(f"{REQUIRE}=1, but {missing}", pytrace=False)
    pytest.skip(str(missing))
