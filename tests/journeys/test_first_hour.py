"""A stranger's first hour with `yaie up`: nothing is replaced, and no browser is needed."""

import json
import shutil
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from fakes.running_up import until, yaie
from fakes.running_up import up as up_with
from yaie.checkpoint.source import BUILTIN
from yaie.cli.local.client import LocalClient
from yaie_local.state import StateFolder

pytestmark = [pytest.mark.journey, pytest.mark.usefixtures("real_main")]
MODEL = """\
apiVersion: yaie.dev/v1alpha1
kind: InferenceModel
metadata:
  name: demo
spec:
  model:
    source: {source}
"""


def model_file(folder: Path, source: str, more: str = "") -> str:
    file = folder / "model.yaml"
    file.write_text(MODEL.format(source=source) + more)
    return str(file)


def ask(endpoint: str) -> tuple[int, Any]:
    body = {"model": "demo", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}
    request = urllib.request.Request(
        f"{endpoint}/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=20) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_a_model_that_cannot_start_says_why_wherever_a_user_looks(tmp_path: Path) -> None:
    state, said = tmp_path / "state", f"There is no model folder at 'file://{tmp_path}/absent'"
    file = model_file(tmp_path, f"file://{tmp_path}/absent")
    with up_with(state, "-f", file, "--timeout", "10") as running:
        running.wait_for(said)
        assert said in yaie("ps", state=state).stderr
        (model,) = json.loads(yaie("ps", "-o", "json", state=state).stdout)["items"]
        told = {c["type"]: c["message"] for c in model["status"]["conditions"]}
        assert said in told["Ready"]
        assert said in told["EnginesReady"]
        status, answer = ask(model["status"]["endpoint"])
        assert (status, said in answer["error"]["message"]) == (503, True)
        client = LocalClient(StateFolder(state).socket)
        _, events = client.call("GET", "/api/v1/namespaces/default/events")
        warnings = [e["message"] for e in events["items"] if e["type"] == "Warning"]
        assert any(said in message for message in warnings)
        assert running.finish(25) == 1
    assert said in running.lines[-1]
    assert running.lines[-1].startswith("yaie: not ready after 10 s: demo: Pod demo-")
    left = yaie("logs", "demo", state=state)
    assert said in left.stdout
    assert "these are the last run's logs" in left.stderr


def test_a_flag_that_the_engine_does_not_know_is_named_by_the_status(tmp_path: Path) -> None:
    args = "  engine: {args: [--max-modellen, '5']}\n"
    file = model_file(tmp_path, "builtin://yaie-demo", args)
    with up_with(tmp_path / "state", "-f", file) as running:
        running.wait_for("unknown argument --max-modellen; did you mean --max-model-len? (see `k")
        assert "--help" not in running.output


def test_a_model_in_tmp_is_served_with_every_path_as_written(
    tmp_path: Path, folder_in_tmp: Path
) -> None:
    checkpoint, template = folder_in_tmp / "checkpoint", folder_in_tmp / "chat.jinja"
    shutil.copytree(BUILTIN / "yaie-demo", checkpoint)
    template.write_text((checkpoint / "chat_template.jinja").read_text())
    (checkpoint / "chat_template.jinja").unlink()
    more = f"  engine:\n    args: [--chat-template={template}]\n"
    state = tmp_path / "state"
    file = model_file(tmp_path, f"file://{checkpoint}", more)
    with up_with(state, "-f", file) as running:
        running.wait_for("Ctrl-C", timeout_s=60)
        status, answer = ask(f"http://127.0.0.1:{running.port}/v1")
        assert status == 200
        assert answer["choices"][0]["message"]["content"]
        pids = running.pids()
        arguments = [Path(f"/proc/{pid}/cmdline").read_text().split("\0") for pid in pids]
        (engine,) = [words for words in arguments if "serve" in words]
        assert f"file://{checkpoint}" in engine
        assert f"--chat-template={template}" in engine
    until(lambda: running.process.poll() is not None)
