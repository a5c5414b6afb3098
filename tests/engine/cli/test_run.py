"""`yaie run`: as a user types it, with the child server in the engine's place."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.running_up import Up, gone, up, yaie
from yaie_local.state import StateFolder

DEMO = "builtin://yaie-demo"


@pytest.fixture
def empty_up(tmp_path: Path) -> Iterator[Up]:
    with up(tmp_path / "state") as running:
        running.wait_for("no model yet")
        yield running


def test_a_prompt_is_answered_on_standard_output_alone_and_everything_ends(tmp_path: Path) -> None:
    done = yaie("run", DEMO, "--prompt", "hi", state=tmp_path)
    assert (done.returncode, done.stdout) == (0, "yaie-demo says hello \n"), done.stderr
    assert "yaie-demo: Ready" in done.stderr
    state = StateFolder(tmp_path)
    assert not state.journal.exists()  # it leaves nothing that a `yaie up` would start
    pids = [json.loads(p.read_text())["pid"] for p in state.of_run.pods.glob("*/process.json")]
    assert gone(pids)


def test_piped_text_is_the_prompt(tmp_path: Path) -> None:
    done = yaie("run", DEMO, state=tmp_path, stdin="What is a pod?\n")
    assert done.stdout == "yaie-demo says hello \n", done.stderr


def test_nothing_is_started_for_a_prompt_that_is_empty(tmp_path: Path) -> None:
    done = yaie("run", DEMO, state=tmp_path, stdin=" \n")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no prompt: give --prompt or write to standard input" in done.stderr
    assert not (tmp_path / "run").exists()


def test_a_name_that_is_none_is_told_before_anything_starts(tmp_path: Path) -> None:
    done = yaie("run", "qwen", "--prompt", "hi", state=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("yaie: There is no model 'qwen': it is no folder here")
    assert not (tmp_path / "run").exists()


def test_where_up_runs_the_model_is_added_and_stays(empty_up: Up) -> None:
    done = yaie("run", DEMO, "--prompt", "hi", state=empty_up.state)
    assert done.stdout == "yaie-demo says hello \n", done.stderr
    assert "created; `yaie delete yaie-demo` ends it" in done.stderr
    empty_up.wait_for("Ctrl-C")
    again = yaie("run", "yaie-demo", "--prompt", "hi", state=empty_up.state)
    assert (again.stdout, "created" in again.stderr) == (done.stdout, False)
    assert empty_up.chat("yaie-demo") == ["yaie-demo", "says", "hello"]


def test_a_model_that_has_no_replicas_is_told(empty_up: Up, tmp_path: Path) -> None:
    yaie("run", DEMO, "--prompt", "hi", state=empty_up.state)
    yaie("scale", "yaie-demo", "--replicas", "0", state=empty_up.state)
    done = yaie("run", DEMO, "--prompt", "hi", state=empty_up.state)
    assert "start one with: yaie scale yaie-demo --replicas 1" in done.stderr


def test_a_name_of_another_model_is_refused_there(empty_up: Up, tmp_path: Path) -> None:
    yaie("run", DEMO, "--prompt", "hi", state=empty_up.state)
    other = tmp_path / "yaie-demo"
    other.mkdir()
    done = yaie("run", str(other), "--prompt", "hi", state=empty_up.state)
    assert f"a model yaie-demo of {DEMO} runs here already" in done.stderr


def test_an_up_without_models_waits_and_says_for_what(empty_up: Up, tmp_path: Path) -> None:
    assert f"`yaie apply -f model.yaml --state-dir {empty_up.state}`" in empty_up.output
    assert empty_up.interrupt() == 0


def test_up_takes_names_beside_files(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with up(state, DEMO) as running:
        running.wait_for("Ctrl-C")
        assert f"Open http://127.0.0.1:{running.port}/ in a browser" in running.output
        assert running.chat("yaie-demo") == ["yaie-demo", "says", "hello"]
        (model,) = json.loads(yaie("ps", "-o", "json", state=state).stdout)["items"]
        assert model["spec"]["model"]["source"] == DEMO
