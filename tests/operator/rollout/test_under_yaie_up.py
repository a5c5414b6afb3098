"""Rollouts through a real `yaie up`: operator, router and processes as users have them."""

import http.client
import json
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from fakes.running_up import Up, gone, model_file, until, up, yaie
from fakes.streaming_load import Load
from yaie_local.state import StateFolder

pytestmark = [pytest.mark.drill, pytest.mark.timeout(300)]
MAIN = "import sys; from yaie.cli.main import main; sys.exit(main())"
MODELS = "/apis/yaie.dev/v1alpha1/namespaces/default/inferencemodels"
PODS = "/api/v1/namespaces/default/pods?labelSelector=yaie.dev/model%3Ddemo"
GPU = "  resources: {gpu: {count: 1}}\n  rollout: {drainSeconds: 5}\n"


class Socket(http.client.HTTPConnection):
    """HTTP over the local API server's unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=20)
        self._path = str(path)

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self._path)


class Machine:
    """A running `yaie up`, and what its API server has."""

    def __init__(self, running: Up, state: Path) -> None:
        self.running = running
        self.state = state

    def get(self, path: str) -> Any:
        connection = Socket(StateFolder(self.state).socket)
        connection.request("GET", path)
        answer = json.loads(connection.getresponse().read())
        connection.close()
        return answer

    def status(self) -> Any:
        return self.get(f"{MODELS}/demo").get("status", {})

    def condition(self, kind: str) -> Any:
        found = (c for c in self.status().get("conditions", ()) if c["type"] == kind)
        return next(found, {})

    def rollout(self) -> Any:
        return self.status().get("rollout", {})

    def pods(self) -> list[Any]:
        pods: list[Any] = self.get(PODS)["items"]
        return pods

    def apply(self, file: Path) -> None:
        before = self.get(f"{MODELS}/demo")["metadata"]["generation"]
        done = yaie("apply", "-f", str(file), state=self.state)
        assert done.returncode == 0, done.stderr
        until(lambda: self.status().get("observedGeneration", 0) > before)

    def becomes_ready(self, engines: int, timeout_s: float = 120.0) -> None:
        def is_so() -> bool:
            ready = self.condition("Ready").get("status") == "True"
            return ready and len(self.pods()) == engines

        until(is_so, timeout_s)


def light(seqs: int, replicas: int) -> str:
    """An engine that leaves the machine's other core to the others."""
    env = "[{name: OMP_NUM_THREADS, value: '1'}]"
    return f"  replicas: {replicas}\n  engine: {{maxNumSeqs: {seqs}, env: {env}}}\n"


def test_an_update_and_scaling_up_and_down_under_load_drop_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With real engines: the built-in model streams to three clients all the time."""
    script = tmp_path / "real_main.py"
    script.write_text(MAIN)
    monkeypatch.setattr("fakes.running_up.SCRIPT", script)
    state = tmp_path / "state"
    with up(state, "-f", str(model_file(tmp_path, text=light(8, 1)))) as running:
        running.wait_for("Ctrl-C", timeout_s=100)
        machine = Machine(running, state)
        with Load(running.port).running(clients=3) as load:
            load.more(3)
            first = load.engines.copy()
            machine.apply(model_file(tmp_path, text=light(9, 1)))
            machine.becomes_ready(1)
            assert machine.rollout()["step"] == "Complete"
            load.more(6)
            assert load.engines - first, "the new engine answers"
            machine.apply(model_file(tmp_path, text=light(9, 2)))
            machine.becomes_ready(2)
            load.more(3)
            machine.apply(model_file(tmp_path, text=light(9, 1)))
            machine.becomes_ready(1)
            load.more(3)
        assert load.failures == []
        pids = running.pids()
        running.interrupt()
    until(lambda: gone(pids))


def test_a_new_version_that_fails_leaves_the_old_one_serving(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with up(state, "-f", str(model_file(tmp_path))) as running:
        running.wait_for("Ctrl-C")
        machine = Machine(running, state)
        (old,) = machine.pods()
        bad = "  engine: {args: ['--exit-after=0.2', '--last-words=no such model']}\n"
        machine.apply(model_file(tmp_path, text=bad))
        until(lambda: machine.rollout()["blockedBy"].startswith("engine failed: "))
        assert "no such model" in machine.rollout()["blockedBy"]
        assert machine.rollout()["step"] == "Surging"
        assert machine.condition("Available")["status"] == "True"
        message = machine.condition("Progressing")["message"]
        assert "1 engine of the earlier spec keeps serving. To go back, apply" in message
        assert running.chat("demo") == ["demo", "says", "hello"]
        machine.apply(model_file(tmp_path))
        machine.becomes_ready(1)
        (pod,) = machine.pods()
        assert pod["metadata"]["name"] == old["metadata"]["name"], "it was not restarted"


def test_without_a_spare_gpu_auto_goes_on_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("YAIE_LOCAL_GPUS", "0,1")
    state = tmp_path / "state"
    two = GPU + "  replicas: 2\n"
    with up(state, "-f", str(model_file(tmp_path, text=two))) as running:
        running.wait_for("Ctrl-C")
        machine = Machine(running, state)
        old = {pod["metadata"]["name"] for pod in machine.pods()}
        with Load(running.port).running(clients=1) as load:
            machine.apply(model_file(tmp_path, text=two + "  engine: {maxNumSeqs: 9}\n"))
            until(lambda: machine.rollout()["blockedBy"].startswith("unschedulable: "))
            assert machine.rollout()["step"] == "Surging"
            began = time.monotonic()
            until(lambda: machine.rollout()["step"] == "Replacing", timeout_s=60)
            assert time.monotonic() - began > 20
            machine.becomes_ready(2)
            load.more(5)
        assert not old & {pod["metadata"]["name"] for pod in machine.pods()}
        assert machine.rollout() == {
            "hash": machine.rollout()["hash"], "step": "Complete", "blockedBy": "",
        }  # fmt: skip
        deployment = machine.get("/apis/apps/v1/namespaces/default/deployments/demo")
        assert deployment["spec"]["strategy"]["rollingUpdate"]["maxSurge"] == 1
        assert load.failures == []
