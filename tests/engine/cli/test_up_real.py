"""The whole path with nothing replaced: operator, router, engine and the built-in model."""

import http.client
import json
from pathlib import Path
from typing import Any

import pytest

from fakes.running_up import gone, model_file, until, yaie
from fakes.running_up import up as up_with

SAMPLE = Path(__file__).parents[3] / "manifests/samples/demo.yaml"
MAIN = "import sys; from yaie.cli.main import main; sys.exit(main())"


@pytest.mark.slow
def test_the_sample_answers_through_the_router(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "real_main.py"
    script.write_text(MAIN)
    monkeypatch.setattr("fakes.running_up.SCRIPT", script)
    with up_with(tmp_path / "state", "-f", str(SAMPLE)) as running:
        running.wait_for("Ctrl-C", timeout_s=100)
        connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=60)
        body = {
            "model": "demo",
            "stream": True,
            "stream_options": {"include_usage": True},
            "messages": [{"role": "user", "content": "What is a dog?"}],
            "max_tokens": 32,
        }
        headers = {"Content-Type": "application/json"}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        text = connection.getresponse().read().decode()
        connection.close()
        chunks = [line.removeprefix("data: ") for line in text.splitlines() if line]
        assert chunks.pop() == "[DONE]"
        usage = json.loads(chunks[-1])["usage"]
        assert 0 < usage["completion_tokens"] <= 32
        status = until(lambda: sizes(running.state))
        assert status["model"]["contextLength"] == 4096
        assert 0 < status["model"]["parameters"] < status["model"]["weightBytes"]
        tokens = status["capacity"]["kvTokens"]
        assert status["capacity"]["maxConcurrency"] == round(tokens / 4096, 2) > 0
        assert f"   {status['capacity']['maxConcurrency']}   " in ps(running.state, "wide")
        pids = running.pids()
        assert running.interrupt() == 0
    until(lambda: gone(pids))


def ps(state: Path, output: str) -> str:
    return yaie("ps", "demo", "-o", output, state=state).stdout


def sizes(state: Path) -> dict[str, Any] | None:
    """The model's status, when it tells what its engine has loaded."""
    status: dict[str, Any] = json.loads(ps(state, "json"))["items"][0].get("status", {})
    return status if {"model", "capacity"} <= status.keys() else None


def test_what_serve_refuses_is_in_the_status_of_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "real_main.py"
    script.write_text(MAIN)
    monkeypatch.setattr("fakes.running_up.SCRIPT", script)
    long = "  engine:\n    maxModelLen: 5000\n"
    file = str(model_file(tmp_path, text=long))
    with up_with(tmp_path / "state", "-f", file) as running:
        running.wait_for("this model has 4096 positions: write --max-model-len 4096 or less")
        pids = running.pids()
        assert running.interrupt() == 130
    until(lambda: gone(pids))
