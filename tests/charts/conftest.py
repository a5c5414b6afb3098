"""The chart, rendered by the real helm; nothing is installed."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

CHART = Path(__file__).parents[2] / "charts" / "yaie"
Render = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="session")
def render(programs: Path) -> Render:
    """`render("router.replicas=2", …)`: the objects, without the tests' unless `tests=True`.

    Raises ValueError with helm's complaint.
    """
    known: dict[tuple[str, ...], list[dict[str, Any]]] = {}

    def run(
        *settings: str, tests: bool = False, flags: tuple[str, ...] = ()
    ) -> list[dict[str, Any]]:
        words = [word for setting in settings for word in ("--set-json", setting)]
        words += [*flags, *(() if tests else ("--skip-tests",))]
        if tuple(words) not in known:
            command = [programs / "helm", "template", "yaie", CHART, "-n", "yaie-system", *words]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise ValueError(done.stderr)
            known[tuple(words)] = [each for each in yaml.safe_load_all(done.stdout) if each]
        copied: list[dict[str, Any]] = json.loads(json.dumps(known[tuple(words)]))
        return copied

    return run
