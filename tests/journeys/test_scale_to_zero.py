"""A model goes to zero when nobody asks, and the next request brings it back and is answered."""

import json
import urllib.request
from pathlib import Path

import pytest

from fakes.running_up import Up, gone, model_file, until, yaie
from fakes.running_up import up as up_with

pytestmark = [pytest.mark.journey, pytest.mark.usefixtures("real_main")]
KEY = "a-key-of-this-test"
AUTOSCALING = """\
  autoscaling:
    min: 0
    max: 2
    idleSeconds: 10
    target:
      activeRequests: 4
"""


def status_of(running: Up) -> str:
    return yaie("ps", "-o", "yaml", state=running.state).stdout


def ask(running: Up) -> int:
    """The status of one answer."""
    body = {"model": "demo", "max_tokens": 8, "messages": [{"role": "user", "content": "hi"}]}
    request = urllib.request.Request(
        f"http://127.0.0.1:{running.port}/v1/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"},
    )
    with urllib.request.urlopen(request, timeout=100) as answer:
        return int(answer.status)


def test_a_model_sleeps_and_the_next_request_wakes_it(tmp_path: Path) -> None:
    model = model_file(tmp_path, text=AUTOSCALING)
    with up_with(tmp_path / "state", "-f", str(model), "--api-key", KEY) as running:
        running.wait_for("Ctrl-C", timeout_s=100)
        running.wait_for("Scaled to zero; the next request starts an engine.", timeout_s=100)
        assert ask(running) == 200
        until(lambda: "reason: FromZero" in status_of(running))
        status = status_of(running)
        assert "reason: ToZero" in status
        assert "Scales from 0 to 2 engines by load." in status
        pids = running.pids()
        assert running.interrupt() == 0
    until(lambda: gone(pids))
