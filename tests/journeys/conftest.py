"""A browser, the servers that it visits, and a page whose console must stay empty."""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.missing import MissingError, give_up
from journeys.browser import MISSING, Browser, browsing

ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}
SHOTS = "YAIE_JOURNEY_SHOTS"
"""Names a folder for screenshots; by default they stay in the test's own folder."""


MAIN = "import sys; from yaie.cli.main import main; sys.exit(main())"


@pytest.fixture
def real_main(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`yaie` is the real command, not the one with a child server in the engine's place."""
    script = tmp_path / "real_main.py"
    script.write_text(MAIN)
    monkeypatch.setattr("fakes.running_up.SCRIPT", script)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture
def folder_in_tmp() -> Iterator[Path]:
    """In /tmp, wherever the other files of tests are: the operator mounts a folder there."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="yaie-journey-") as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if MISSING:
        give_up(MissingError(f"{MISSING}: `make journeys` installs them"))
    with browsing(tmp_path_factory.mktemp("browser")) as running:
        yield running


@pytest.fixture
def page(browser: Browser) -> Iterator[Browser]:
    """The browser, in a window of usual size that shows nothing yet."""
    browser.go("about:blank")
    browser.errors()
    yield browser
    browser.look("light")
    assert browser.errors() == []


@pytest.fixture
def shots(tmp_path: Path) -> Path:
    folder = Path(os.environ.get(SHOTS, tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`yaie serve` with the built-in model."""
    log = tmp_path_factory.mktemp("served") / "log"
    command = [sys.executable, "-m", "yaie", "serve", "builtin://yaie-demo", "--port", "0"]
    with log.open("w") as stderr:
        process = subprocess.Popen([*command, "--device", "cpu"], stderr=stderr, env=ENVIRONMENT)
    try:
        deadline = time.monotonic() + 60
        while not (ready := re.search(r'"message": "ready", "url": "([^"]+)"', log.read_text())):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        yield ready[1]
    finally:
        process.terminate()
        process.wait(40)
