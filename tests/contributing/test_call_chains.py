"""`docs/contributing/call-chains.md` lists what really runs: a chat and an apply are traced through
`yaie up`, in every process, and each function of a list must have been called, in that order.
"""

import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from docs.pages import ROOT

pytestmark = pytest.mark.drill
PAGE = ROOT / "docs/contributing/call-chains.md"
HERE = Path(__file__).parent
N_PROCESSES = 4  # `yaie up`, the router, an HTTP process and its engine process
MODEL = """\
apiVersion: yaie.dev/v1alpha1
kind: InferenceModel
metadata:
  name: demo
spec:
  replicas: {replicas}
  model:
    source: builtin://yaie-demo
"""


def listed(title: str) -> list[str]:
    """`path:function` of each line of the page's section, in order."""
    section = PAGE.read_text().split(f"## {title}\n")[1].split("\n## ")[0]
    return re.findall(
        r"`((?:api|engine|kernels|local|operator|router)/[\w/]+\.py:[\w.]+)`", section
    )


def until(fact: Callable[[], bool], timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not fact():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.05)


class Traced:
    """A running `yaie up` whose processes record what they call."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._calls = folder / "calls"
        self._calls.mkdir()
        self.state = folder / "state"
        self._written: list[Path] = []
        environment = os.environ | {
            "CALL_TRACE": str(self._calls),
            "PYTHONPATH": os.pathsep.join((str(HERE), os.environ.get("PYTHONPATH", ""))),
            "OMP_NUM_THREADS": "1",
        }
        flags = ["--state-dir", str(self.state), "--port", "0", "--timeout", "120"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "yaie", "up", "-f", str(self.model(1)), *flags],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        lines = iter(self.process.stdout.readline, "")
        self.endpoint = next(line.split()[-1] for line in lines if "endpoint" in line)

    def model(self, replicas: int) -> Path:
        path = self._folder / "model.yaml"
        path.write_text(MODEL.format(replicas=replicas))
        return path

    def begin(self, phase: str) -> None:
        folder = self._calls / phase
        folder.mkdir()
        (folder / "start").touch()
        until(lambda: len(list(folder.glob("*.begun"))) >= N_PROCESSES)
        self._written = [file.with_suffix(".json") for file in folder.glob("*.begun")]

    def end(self, phase: str) -> list[str]:
        """Every call, as `path:function`, in order and of all processes that were there."""
        folder = self._calls / phase
        (folder / "stop").touch()
        until(lambda: all(file.exists() for file in self._written))
        calls = sorted(call for file in self._written for call in json.loads(file.read_text()))
        return [f"{path.removeprefix(f'{ROOT}/')}:{name}" for _, path, name in calls]


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Traced]:
    running = Traced(tmp_path_factory.mktemp("traced"))
    try:
        yield running
    finally:
        running.process.terminate()
        running.process.communicate(timeout=40)


def ask(endpoint: str) -> str:
    body = {
        "model": "demo",
        "messages": [{"role": "user", "content": "What is Kubernetes?"}],
        "stream": True,
        "max_tokens": 8,
    }
    request = urllib.request.Request(
        f"{endpoint}/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        return str(response.read().decode())


def check(chain: list[str], calls: list[str]) -> None:
    """Each function of `chain` was called, and once at least after the one before it."""
    assert len(chain) > 10
    assert set(chain) <= set(calls), f"never called: {set(chain) - set(calls)}"
    rest = iter(calls)
    for hop in chain:
        assert hop in rest, f"not called after the function listed before it: {hop}"


def test_a_chat_takes_the_listed_way(traced: Traced) -> None:
    ask(traced.endpoint)
    traced.begin("chat")
    assert "data: [DONE]" in ask(traced.endpoint)
    time.sleep(0.3)
    check(listed("A chat"), traced.end("chat"))


def shown(traced: Traced) -> str:
    """The model with its status, as YAML."""
    command = ["ps", "-o", "yaml", "--state-dir", str(traced.state)]
    done = subprocess.run([sys.executable, "-m", "yaie", *command], check=True, capture_output=True)
    return done.stdout.decode()


def test_an_apply_takes_the_listed_way(traced: Traced) -> None:
    traced.begin("apply")
    command = ["apply", "-f", str(traced.model(2)), "--state-dir", str(traced.state)]
    subprocess.run([sys.executable, "-m", "yaie", *command], check=True, capture_output=True)
    until(lambda: "observedGeneration: 2" in shown(traced))
    time.sleep(1.5)  # the controllers look twice a second
    check(listed("An apply"), traced.end("apply"))
