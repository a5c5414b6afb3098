"""The examples of README.md and docs/serving.md do what they say, as they are written: only the
port differs. Blocks marked `python` and `bash` are examples; unmarked ones are to be read.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.pages import ROOT, blocks

pytestmark = pytest.mark.drill
PAGES = ("README.md", "docs/serving.md")
WRITTEN = "http://127.0.0.1:8000"
ENVIRONMENT = os.environ | {
    "OMP_NUM_THREADS": "1",
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of the demo model under the name that the examples use."""
    log = tmp_path_factory.mktemp("served") / "log"
    command = [sys.executable, "-m", "yaie", "serve", "builtin://yaie-demo", "--port", "0"]
    flags = ["--device", "cpu", "--served-model-name", "demo", "--log-format", "json"]
    with log.open("w") as stderr:
        process = subprocess.Popen([*command, *flags], stderr=stderr, env=ENVIRONMENT)
    try:
        yield _when_ready(process, log)
    finally:
        process.terminate()
        process.wait(40)


def _when_ready(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + 100
    while not (ready := re.search(r'"message": "ready", "url": "([^"]+)"', log.read_text())):
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)
    return ready[1]


def run(*command: str, folder: Path) -> str:
    done = subprocess.run(
        command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("page", PAGES)
def test_programs_of_clients(page: str, url: str, tmp_path: Path) -> None:
    programs = [text for text in blocks(ROOT / page, "python") if WRITTEN in text]
    assert programs
    for program in programs:
        assert run(sys.executable, "-c", program.replace(WRITTEN, url), folder=tmp_path).strip()


def test_programs_without_a_server(tmp_path: Path) -> None:
    found = [text for page in PAGES for text in blocks(ROOT / page, "python")]
    programs = [text for text in found if WRITTEN not in text]
    assert len(programs) == 2
    run(sys.executable, "-c", "\n".join(programs), folder=tmp_path)


def test_commands(url: str, tmp_path: Path) -> None:
    for text in blocks(ROOT / "docs/serving.md", "bash"):
        run("bash", "-e", "-c", text.replace(WRITTEN, url), folder=tmp_path)
    answers = (tmp_path / "answers.jsonl").read_text().splitlines()
    assert [answer.count('"status_code":200') for answer in answers] == [1, 1]
