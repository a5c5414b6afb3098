"""`yaie up` with `cache.mode: pvc`: one download for all engines, which need no hub."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.checkpoint.fake_bucket import SECRET, Bucket, storing
from engine.checkpoint.fake_hub import Hub, serving
from fakes.running_up import Up, gone, until, up, yaie
from yaie.checkpoint import source

NAME = "org/tiny"
FILES = {
    "config.json": json.dumps({"model_type": "llama"}).encode(),
    "tokenizer.json": b"{}",
    "model.safetensors": os.urandom(6 * 2**20),
}
MAIN = "import sys; from yaie.cli.main import main; sys.exit(main())"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "HF_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    with serving(Hub()) as running:
        yield running


def model(folder: Path, hub: Hub, *, uri: str = f"hf://{NAME}", more: str = "") -> str:
    """A file with a model that has a cache. `more` goes below `spec.engine.env`."""
    path = folder / "model.yaml"
    path.write_text(
        "apiVersion: yaie.dev/v1alpha1\nkind: InferenceModel\nmetadata:\n  name: demo\nspec:\n"
        f"  replicas: 2\n  model:\n    source: {uri}\n  cache:\n    mode: pvc\n    size: 1Gi\n"
        f"  engine:\n    env:\n    - name: HF_ENDPOINT\n      value: {hub.url}\n{more}"
    )
    return str(path)


def status(state: Path) -> Any:
    told = yaie("ps", "-o", "json", state=state).stdout or '{"items": []}'  # not yet listening
    found = json.loads(told)["items"]
    return found[0].get("status", {}) if found else {}


def claim(state: Path) -> Path:
    return state / "volumes" / "default" / "demo-weights"


def downloads(running: Up) -> list[int]:
    """Pids of the processes of downloads."""
    return [pid for pid in running.pids() if b"\0pull\0" in _command(pid)]


def _command(pid: int) -> bytes:
    path = Path(f"/proc/{pid}/cmdline")
    return path.read_bytes() if path.exists() else b""


@pytest.mark.drill
def test_two_engines_share_one_download_that_was_killed_in_the_middle(
    hub: Hub, tmp_path: Path
) -> None:
    commit = hub.push(NAME, FILES)
    hub.pace_s = 2.0
    state = tmp_path / "state"
    with up(state, "-f", model(tmp_path, hub)) as running:
        until(lambda: status(state).get("cache", {}).get("bytesPerSecond"))
        told = yaie("ps", state=state)
        assert "Downloading" in told.stdout
        assert "of 6.3 MB (" in told.stderr
        assert "/s, " in told.stderr
        (pid,) = downloads(running)
        os.kill(pid, signal.SIGKILL)
        until(lambda: downloads(running) not in ([], [pid]))
        hub.pace_s = 0.0
        running.wait_for("Ctrl-C")
        first, second = hub.ranges("model.safetensors")
        assert first is None
        assert int(str(second).removeprefix("bytes=").removesuffix("-")) >= 2**19
        said = status(state)
        assert said["ready"] == "2/2"
        assert said["model"] == {"resolvedRevision": commit}
        folder = claim(state) / said["cache"]["folder"]
        assert (folder / "model.safetensors").read_bytes() == FILES["model.safetensors"]
        logs = yaie("logs", "demo", state=state).stdout
        assert f"started serve {folder}" in logs
        assert yaie("delete", "demo", state=state).returncode == 0
        until(lambda: not claim(state).exists())


@pytest.mark.drill
def test_a_second_run_needs_no_hub(hub: Hub, tmp_path: Path) -> None:
    hub.push(NAME, FILES)
    state = tmp_path / "state"
    with up(state, "-f", model(tmp_path, hub)) as running:
        running.wait_for("Ctrl-C")
        running.interrupt()
    hub.broken_status = 503
    asked = len(hub.asked)
    with up(state) as running:
        running.wait_for("Ctrl-C")
    assert len(hub.asked) == asked


def test_a_download_that_cannot_work_says_why_and_works_once_it_can(
    hub: Hub, tmp_path: Path
) -> None:
    hub.push(NAME, FILES)
    hub.repositories[NAME].gated = True
    state = tmp_path / "state"
    with up(state, "-f", model(tmp_path, hub)) as running:
        running.wait_for("org/tiny is gated")
        assert "demo: Failed (" in running.output
        hub.repositories[NAME].gated = False
        running.wait_for("Ctrl-C")


def test_a_bucket_is_read_with_the_keys_of_a_secret_that_no_log_shows(
    hub: Hub, tmp_path: Path
) -> None:
    pytest.importorskip("obstore")
    state = tmp_path / "state"
    with storing(Bucket(files={f"org/tiny/{k}": v for k, v in FILES.items()})) as bucket:
        values = "".join(f"  {key}: {value}\n" for key, value in bucket.environ.items())
        secret = tmp_path / "secret.yaml"
        head = "apiVersion: v1\nkind: Secret\nmetadata:\n  name: aws\nstringData:\n"
        secret.write_text(head + values)
        uri = "s3://models/org/tiny\n    secretRef:\n      name: aws"
        with up(state, "-f", str(secret), model(tmp_path, hub, uri=uri)) as running:
            running.wait_for("Ctrl-C")
            logs = yaie("logs", "demo", state=state).stdout
            assert SECRET not in running.output + logs + json.dumps(status(state))
            assert len(status(state)["model"]["resolvedRevision"]) == 40
    assert len(bucket.ranges("model.safetensors")) == 1


@pytest.mark.drill
@pytest.mark.timeout(300)
def test_real_engines_answer_from_the_claim_after_the_hub_is_gone(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "real_main.py"
    script.write_text(MAIN)
    monkeypatch.setattr("fakes.running_up.SCRIPT", script)
    local = source.resolve("builtin://yaie-demo")
    hub.push(NAME, {path.name: path.read_bytes() for path in local.iterdir() if path.is_file()})
    state = tmp_path / "state"
    file = Path(model(tmp_path, hub))
    file.write_text(file.read_text().replace("replicas: 2", "replicas: 1"))
    with up(state, "-f", str(file)) as running:
        running.wait_for("Ctrl-C", timeout_s=120)
        hub.broken_status = 503
        asked = len(hub.asked)
        assert yaie("scale", "demo", "--replicas", "2", state=state).returncode == 0
        until(lambda: status(state).get("ready") == "2/2", timeout_s=120)
        assert len(hub.asked) == asked
        pids = running.pids()
        assert running.interrupt() == 0
    until(lambda: gone(pids))
