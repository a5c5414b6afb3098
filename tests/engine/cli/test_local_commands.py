"""apply, delete, scale, ps and logs against one running `yaie up`."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from fakes.model_folders import copy_of_demo
from fakes.running_up import SCRIPT, Up, gone, model_file, until, up, yaie
from yaie.cli.commands.local.logs import together
from yaie.cli.commands.local.ps import age, table
from yaie_api.errors import UnavailableError
from yaie_local.state import StateFolder, StateLock


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    folder = tmp_path_factory.mktemp("up")
    with up(folder / "state", "-f", str(model_file(folder, "base"))) as started:
        started.wait_for("Ctrl-C")
        yield started


def call(running: Up, *arguments: str) -> subprocess.CompletedProcess[str]:
    return yaie(*arguments, state=running.state)


def listed(running: Up, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(call(running, "ps", name, "-o", "json").stdout)["items"][0]
    return found


def ready(running: Up, name: str) -> str:
    return str(listed(running, name).get("status", {}).get("ready", ""))


def test_apply_tells_created_unchanged_and_configured(running: Up, tmp_path: Path) -> None:
    file = str(model_file(tmp_path, "applied", text="  replicas: 0\n"))
    assert call(running, "apply", "-f", file).stdout == "inferencemodel/applied created\n"
    until(lambda: ready(running, "applied") == "0/0")
    again = call(running, "apply", "-f", file).stdout
    assert again == "inferencemodel/applied unchanged\n"
    model_file(tmp_path, "applied", text="  replicas: 0\n  routing: {policy: LeastLoaded}\n")
    assert call(running, "apply", "-f", file).stdout == "inferencemodel/applied configured\n"


def test_apply_reads_standard_input_and_folders(running: Up, tmp_path: Path) -> None:
    model_file(tmp_path, "in-folder", text="  suspend: true\n")
    done = call(running, "apply", "-f", str(tmp_path))
    assert done.stdout == "inferencemodel/in-folder created\n"
    secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: hf}\nstringData: {token: x}\n"
    done = yaie("apply", "-f", "-", state=running.state, stdin=secret)
    assert done.stdout == "secret/hf created\n", done.stderr
    assert call(running, "delete", "-f", str(tmp_path)).returncode == 0


def test_apply_refuses_with_file_and_line_and_stores_nothing(running: Up, tmp_path: Path) -> None:
    good = model_file(tmp_path, "refused-good")
    bad = model_file(tmp_path, "refused-bad", text="  rollout: {maxSurge: 0}\n")
    done = call(running, "apply", "-f", str(good), str(bad))
    assert done.returncode == 1
    assert f"{bad}:1: InferenceModel.yaie.dev" in done.stderr
    assert call(running, "ps", "refused-good").returncode == 1


def test_scale_starts_and_ends_engines(running: Up, tmp_path: Path) -> None:
    call(running, "apply", "-f", str(model_file(tmp_path, "scaled")))
    done = call(running, "scale", "scaled", "--replicas", "2")
    assert done.stdout == "inferencemodel/scaled scaled to 2\n"
    until(lambda: ready(running, "scaled") == "2/2", timeout_s=40)
    assert running.chat("scaled")[0] == "scaled"
    before = running.pids()
    call(running, "scale", "scaled", "--replicas", "0")
    until(lambda: len(running.pids()) == len(before) - 2)
    assert not gone(before)


def test_a_watch_that_was_interrupted_leaves_no_traceback_where_up_runs(running: Up) -> None:
    command = [sys.executable, str(SCRIPT), "ps", "--state-dir", str(running.state), "-w"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        watching.stdout.readline()
        time.sleep(0.3)
        watching.send_signal(signal.SIGINT)
        watching.wait(10)
    for replicas in ("2", "1"):
        call(running, "scale", "base", "--replicas", replicas)
        until(lambda n=replicas: ready(running, "base") == f"{n}/{n}", timeout_s=40)
    assert "Traceback" not in running.output


def test_delete_ends_the_engines_of_a_model_and_only_those(running: Up, tmp_path: Path) -> None:
    before = set(running.pids())
    call(running, "apply", "-f", str(model_file(tmp_path, "deleted")))
    until(lambda: ready(running, "deleted") == "1/1", timeout_s=40)
    (own,) = set(running.pids()) - before
    assert call(running, "delete", "deleted").stdout == "inferencemodel/deleted deleted\n"
    until(lambda: gone([own]))
    assert running.chat("base")[0] == "base"
    again = call(running, "delete", "deleted")
    assert (again.returncode, again.stderr) == (1, "yaie: not found: inferencemodel/deleted\n")
    assert call(running, "delete", "deleted", "--ignore-not-found").returncode == 0


def test_ps_shows_a_table(running: Up) -> None:
    heading, line = call(running, "ps", "base").stdout.splitlines()
    assert heading.split() == ["NAME", "PHASE", "READY", "MODEL", "ENDPOINT", "AGE"]
    url = f"http://127.0.0.1:{running.port}/v1"
    assert line.split()[:5] == ["base", "Ready", "1/1", "builtin://yaie-demo", url]
    assert "REASON" in call(running, "ps", "-o", "wide").stdout


def test_ps_yaml_can_be_applied_again(running: Up, tmp_path: Path) -> None:
    found = yaml.safe_load(call(running, "ps", "base", "-o", "yaml").stdout)["items"][0]
    assert "managedFields" not in found["metadata"]
    assert found["status"]["ready"] == "1/1"


def test_a_running_up_is_explained_with_how_to_talk_to_it(running: Up) -> None:
    done = call(running, "explain", "base")
    assert done.returncode == 0, done.stderr
    assert "default/base on `yaie up`" in done.stdout
    assert "Nothing is awaited (AllReady for" in done.stdout
    chat = f"  yaie chat --model base --endpoint http://127.0.0.1:{running.port}"
    assert done.stdout.splitlines()[-1] == chat


def test_an_engine_that_cannot_start_says_why_under_up(running: Up, tmp_path: Path) -> None:
    broken = model_file(tmp_path, "broken", text="  resources: {gpu: {count: 1}}\n")
    call(running, "apply", "-f", str(broken))

    def explained() -> dict[str, Any] | None:
        found = json.loads(call(running, "explain", "broken", "-o", "json").stdout)
        return found if found["reason"] == "Unschedulable" else None

    found = until(explained)
    assert not found["is_ready"]
    assert "needs 1 GPU(s)" in found["message"]
    assert found["engines"][0]["state"] == "Pending"
    assert found["next"][0] == f"yaie ps -o wide --state-dir {running.state}"
    call(running, "delete", "broken")


def test_a_model_that_is_not_there_names_those_that_are(running: Up) -> None:
    done = call(running, "explain", "nobody")
    assert done.returncode == 1
    assert "no model named nobody in namespace default (models there: " in done.stderr


def test_doctor_looks_at_a_running_up(running: Up) -> None:
    done = call(running, "doctor", "--no-machine")
    assert f"`yaie up` in {running.state}" in done.stdout
    assert "models            " in done.stdout, done.stderr


def test_a_plan_looks_at_the_machine_of_a_running_up(running: Up, tmp_path: Path) -> None:
    file = model_file(tmp_path, "wide", text="  resources: {gpu: {count: 1}}\n")
    done = call(running, "plan", "-f", str(file))
    assert (done.returncode, "it has no GPU" in done.stdout) == (1, True), done.stderr
    done = call(running, "plan", "-f", str(model_file(tmp_path, "base")))
    assert (done.returncode, "base: 1 wanted, 1 running" in done.stdout) == (0, True), done.stdout
    done = call(running, "plan", str(copy_of_demo(tmp_path)))
    assert (done.returncode, "any number" in done.stdout) == (0, True), done.stdout


def test_logs_are_those_of_the_models_pods(running: Up) -> None:
    done = call(running, "logs", "base")
    assert "started serve builtin://yaie-demo --host 127.1." in done.stdout
    assert call(running, "logs", "base", "--tail", "0").stdout == ""
    assert "serving" in call(running, "logs", "--router").stdout


def test_followed_logs_of_several_pods_come_together() -> None:
    found = list(together([iter([b"a\n", b"b\n"]), iter([b"c\n"])]))
    assert sorted(found) == [b"a\n", b"b\n", b"c\n"]
    assert found.index(b"a\n") < found.index(b"b\n")


def test_what_breaks_one_followed_log_ends_the_command() -> None:
    def broken() -> Iterator[bytes]:
        yield b"a\n"
        raise UnavailableError("it has ended")

    with pytest.raises(UnavailableError, match="it has ended"):
        list(together([broken()]))


def test_logs_of_nobody_name_the_models(running: Up) -> None:
    done = call(running, "logs", "nobody")
    assert done.returncode == 1
    assert "no pod of a model nobody (models here: " in done.stderr


def test_scale_of_nobody_and_of_too_many_is_refused(running: Up) -> None:
    assert "not found" in call(running, "scale", "nobody", "--replicas", "1").stderr
    assert "spec.replicas" in call(running, "scale", "base", "--replicas", "5000").stderr
    assert call(running, "scale", "base", "--replicas", "-1").returncode == 2


def test_logs_of_the_last_run_can_be_read_when_nothing_runs(tmp_path: Path) -> None:
    state = StateFolder(tmp_path)
    state.create()
    StateLock(state).release()
    for pod in ("demo-a1b2c3d4e5-x1y2z", "demo-2-a1b2c3d4e5-x1y2z", "yaie-router-a1b2-x1y2z"):
        (state.logs / f"{pod}.log").write_text(f"of {pod}\nends\n")
    done = yaie("logs", "demo", state=tmp_path)
    assert (done.returncode, done.stdout) == (0, "of demo-a1b2c3d4e5-x1y2z\nends\n")
    assert f"nothing runs in {tmp_path}; these are the last run's logs" in done.stderr
    (state.logs / "demo-a1b2c3d4e5-other.log").write_text("more\n")
    both = yaie("logs", "demo", "--tail", "1", state=tmp_path).stdout
    assert both == "[demo-a1b2c3d4e5-x1y2z] ends\n[demo-a1b2c3d4e5-other] more\n"
    one = yaie("logs", "demo-2-a1b2c3d4e5-x1y2z", "--tail", "1", state=tmp_path)
    assert one.stdout == "ends\n"
    assert "of yaie-router" in yaie("logs", "--router", "-f", state=tmp_path).stdout
    absent = yaie("logs", "nobody", state=tmp_path)
    assert (absent.returncode, absent.stdout) == (1, "")
    assert "start it with: yaie up -f model.yaml" in absent.stderr


def test_ps_says_below_the_table_why_a_model_is_not_ready(running: Up, tmp_path: Path) -> None:
    gpu = "  resources: {gpu: {count: 1}}\n"
    call(running, "apply", "-f", str(model_file(tmp_path, "big", text=gpu)))
    until(lambda: "GPU(s), this machine has 0" in call(running, "ps", "big").stderr)
    assert call(running, "ps", "base").stderr == ""
    assert call(running, "ps", "big", "-o", "wide").stderr == ""
    assert call(running, "delete", "big").returncode == 0


@pytest.mark.parametrize(
    "arguments", [("ps",), ("logs", "a"), ("delete", "a"), ("scale", "a", "--replicas", "1")]
)
def test_without_up_each_command_says_how_to_start_it(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    done = yaie(*arguments, state=tmp_path)
    assert done.returncode == 1
    assert "start it with: yaie up -f model.yaml" in done.stderr


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "0s"), (119, "119s"), (120, "2m"), (310, "5m10s"), (7200, "120m"), (90000, "1d")],
)
def test_ages_are_as_short_as_kubectls(seconds: float, text: str) -> None:
    assert age(seconds) == text


def test_a_table_is_as_wide_as_its_cells() -> None:
    assert table([["A", "B"], ["long", "x"]]) == "A      B\nlong   x"
