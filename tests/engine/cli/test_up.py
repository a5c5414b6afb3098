import json
import signal
import socket
import sys
from pathlib import Path

import pytest

from fakes.running_up import gone, model_file, until, up, yaie
from yaie.cli.main import main


def test_up_serves_a_streamed_answer_and_leaves_no_process(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with up(state, "-f", str(model_file(tmp_path))) as running:
        running.wait_for("Ctrl-C")
        assert f"yaie chat --endpoint http://127.0.0.1:{running.port}" in running.output
        assert f"yaie ps --state-dir {state}\n" in running.output
        assert running.chat("demo") == ["demo", "says", "hello"]
        pids = running.pids()
        assert len(pids) == 2
        assert running.interrupt() == 0
    assert gone(pids)
    assert "stopping" in running.output


def test_progress_says_what_is_awaited(tmp_path: Path) -> None:
    with up(tmp_path / "state", "-f", str(model_file(tmp_path))) as running:
        running.wait_for("Ctrl-C")
        lines = [line for line in running.lines if line.startswith("demo: ")]
        assert "Starting" in running.output
        assert lines[-1].startswith("demo: Ready (")


def test_a_second_run_picks_up_what_is_stored(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with up(state, "-f", str(model_file(tmp_path))) as running:
        running.wait_for("Ctrl-C")
        running.interrupt(signal.SIGTERM)
    with up(state) as running:
        running.wait_for("Ctrl-C")
        assert running.chat("demo") == ["demo", "says", "hello"]


def test_after_a_kill_the_next_run_ends_the_orphans(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with up(state, "-f", str(model_file(tmp_path))) as running:
        running.wait_for("Ctrl-C")
        orphans = running.pids()
        running.interrupt(signal.SIGKILL)
    assert not gone(orphans)
    with up(state) as running:
        running.wait_for("Ctrl-C")
        assert gone(orphans)


def test_a_signal_before_ready_ends_it_too(tmp_path: Path) -> None:
    slow = "  engine:\n    args: [--ready-after=60]\n"
    with up(tmp_path / "state", "-f", str(model_file(tmp_path, text=slow))) as running:
        running.wait_for("Starting")
        pids = until(running.pids)
        assert running.interrupt() == 130
    assert gone(pids)


def test_two_signals_do_not_wait_for_an_engine_that_hangs(tmp_path: Path) -> None:
    deaf = "  engine:\n    args: [--deaf]\n"
    with up(tmp_path / "state", "-f", str(model_file(tmp_path, text=deaf))) as running:
        running.wait_for("Ctrl-C")
        pids = running.pids()
        running.process.send_signal(signal.SIGINT)
        running.wait_for("stopping")
        assert running.interrupt(timeout_s=5) == 0
    assert gone(pids)


def test_giving_up_names_what_is_not_ready(tmp_path: Path) -> None:
    slow = "  engine:\n    args: [--ready-after=60]\n"
    file = str(model_file(tmp_path, text=slow))
    with up(tmp_path / "state", "-f", file, "--timeout", "1") as running:
        assert running.finish() == 1
    assert "yaie: not ready after 1 s: demo: Pod demo-" in running.output


def test_a_command_runs_when_all_is_ready_and_its_status_is_the_status(tmp_path: Path) -> None:
    code = (
        "import os, urllib.request as r;"
        "print(r.urlopen(os.environ['YAIE_ENDPOINT'] + '/v1/models').read().decode());"
        "raise SystemExit(7)"
    )
    file = str(model_file(tmp_path))
    with up(tmp_path / "state", "-f", file, "--", sys.executable, "-c", code) as running:
        assert running.finish(40) == 7
    models = json.loads(running.lines[-1])
    assert [model["id"] for model in models["data"]] == ["demo"]


def test_several_models_share_the_endpoint(tmp_path: Path) -> None:
    files = [str(model_file(tmp_path, name)) for name in ("one", "two")]
    with up(tmp_path / "state", "-f", *files) as running:
        running.wait_for("Ctrl-C")
        assert running.chat("one")[0] == "one"
        assert running.chat("two")[0] == "two"


def test_a_port_in_use_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        state = tmp_path / "state"
        done = yaie("up", "-f", str(model_file(tmp_path)), "--port", port, state=state)
    assert done.returncode == 1
    assert f"port {port} on 127.0.0.1 is in use" in done.stderr


def test_a_folder_in_use_is_told(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with up(state, "-f", str(model_file(tmp_path))) as running:
        running.wait_for("Ctrl-C")
        for port in ("0", str(running.port)):  # the same port, too: the reason is the folder
            done = yaie("up", "--port", port, state=state)
            assert done.returncode == 1
            assert f"another `yaie up` (pid {running.process.pid})" in done.stderr
            assert "use `yaie apply` to add to it" in done.stderr


def test_a_command_that_has_no_model_to_talk_to_is_refused(tmp_path: Path) -> None:
    done = yaie("up", "--port", "0", "--", "true", state=tmp_path)
    assert done.returncode == 1
    assert "nothing to run; name a model or a file: yaie up -f model.yaml" in done.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("  replicsa: 2\n", "demo.yaml:8: spec.replicsa: unknown field; did you mean `replicas`?"),
        ("  replicas: many\n", "demo.yaml:8: spec.replicas:"),
        ("  rollout: {maxSurge: 0}\n", "write maxUnavailable: 1"),
    ],
)
def test_a_mistake_in_a_file_is_named_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    file = str(model_file(tmp_path, text=text))
    done = yaie("up", "-f", file, "--port", "0", state=tmp_path / "state")
    assert done.returncode == 1
    assert said in done.stderr
    assert file in done.stderr


def test_another_namespace_is_told(tmp_path: Path) -> None:
    file = model_file(tmp_path)
    file.write_text(file.read_text().replace("  name: demo", "  name: demo\n  namespace: prod"))
    done = yaie("up", "-f", str(file), "--port", "0", state=tmp_path / "state")
    assert done.returncode == 1
    assert "write --namespace prod" in done.stderr


def test_another_namespace_is_published_when_asked(tmp_path: Path) -> None:
    file = str(model_file(tmp_path))
    with up(tmp_path / "state", "-f", file, "--namespace", "prod") as running:
        running.wait_for("Ctrl-C")
        assert running.chat("demo") == ["demo", "says", "hello"]


def test_a_refused_file_stores_nothing(tmp_path: Path) -> None:
    good = str(model_file(tmp_path, "good"))
    bad = str(model_file(tmp_path, "bad", text="  rollout: {maxSurge: 0}\n"))
    state = tmp_path / "state"
    assert yaie("up", "-f", good, bad, "--port", "0", state=state).returncode == 1
    assert "nothing to run" in yaie("up", "--port", "0", "--", "true", state=state).stderr


def test_a_missing_package_is_named_with_the_way_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    loaded = ("yaie.cli.local.session", "yaie_local", "celpy")
    for module in [name for name in sys.modules if name.startswith(loaded)]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setattr(sys, "meta_path", [Without("celpy"), *sys.meta_path])
    assert main(["up", "-f", str(model_file(tmp_path)), "--state-dir", str(tmp_path)]) == 1
    told = capsys.readouterr().err
    assert told.startswith("yaie: yaie up needs the Python package celpy, which is not installed.")
    assert 'pip install -e ".[all]"' in told
    assert "Traceback" not in told


class Without:
    """An importer that lacks one module."""

    def __init__(self, name: str) -> None:
        self.name = name

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == self.name:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    done = yaie("up", "-f", "/no/such.yaml", state=tmp_path)
    assert done.returncode == 1
    assert "cannot read /no/such.yaml: No such file" in done.stderr
