"""A stranger's first hour on a terminal: keys are pressed, and nothing is replaced but the hub."""

import json
import os
import sys
from pathlib import Path

import pytest

from engine.checkpoint.fake_hub import Hub, serving
from fakes.running_up import gone, until
from fakes.terminal import terminal
from yaie.checkpoint.source import BUILTIN
from yaie_local.state import StateFolder

pytestmark = pytest.mark.journey
YAIE = (sys.executable, "-m", "yaie")
DEMO = "builtin://yaie-demo"


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """The environment of somebody who has never used yaie."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "YAIE_", "NO_COLOR"))}
    own = {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}
    return kept | own | {"HF_HOME": str(tmp_path / "hf")}


def pids(folder: Path) -> list[int]:
    return [json.loads(p.read_text())["pid"] for p in folder.glob("pods/*/process.json")]


def test_run_leads_to_a_chat_in_one_command_and_ends_with_it(
    tmp_path: Path, env: dict[str, str]
) -> None:
    folder = StateFolder(tmp_path / "yaie").of_run.path
    with terminal(*YAIE, "run", DEMO, env=env) as chat:
        chat.wait_for("Talking to yaie-demo. /help lists commands")
        chat.wait_for(">>>")
        assert "\033[1F\033[J" in chat.shown  # the progress is gone from the screen
        started = pids(folder)
        assert len(started) == 2
        with terminal(*YAIE, "ps", env=env) as other:
            assert other.end() == 0
            assert "yaie-demo   Ready" in other.text
        chat.press("What is a pod?\r")
        chat.wait_for("pod is the smallest unit that Kubernetes runs")
        chat.press("/stats\r")
        chat.wait_for("tokens/s")
        assert chat.leave("\x04") == 0
    assert gone(started)


def test_a_download_is_told_while_up_waits_for_it_and_a_log_is_for_people(
    tmp_path: Path, env: dict[str, str]
) -> None:
    files = {path.name: path.read_bytes() for path in (BUILTIN / "yaie-demo").iterdir()}
    with serving(Hub(pace_s=0.3)) as hub:
        hub.push("org/tiny", files)
        there = env | {"HF_ENDPOINT": hub.url}
        with terminal(*YAIE, "up", "org/tiny", "--port", "0", env=there) as up:
            up.wait_for("tiny: Starting (", 20)
            until(lambda: "download: " in up.text and " of 11.5 MB (" in up.text)
            up.wait_for("Open http://127.0.0.1:")
            logs = read(there, "logs", "tiny")
            raw = read(there, "logs", "tiny", "--json")
            up.press("\x03")
            up.wait_for("stopping (Ctrl-C again: at once)")
            assert up.end() == 0
    (ready,) = (line for line in logs.splitlines() if " INFO    ready  url=http://127.1." in line)
    assert 'models="tiny, org/tiny"' in ready
    assert '"message": "ready"' in raw
    assert "{" not in ready


def read(env: dict[str, str], *words: str) -> str:
    with terminal(*YAIE, *words, env=env) as shown:
        assert shown.end() == 0
        return shown.text


def test_a_watch_that_is_interrupted_is_quiet_on_both_sides(
    tmp_path: Path, env: dict[str, str]
) -> None:
    with terminal(*YAIE, "up", "--port", "0", env=env) as up:
        up.wait_for("no model yet: in another terminal `yaie run MODEL` or")
        with terminal(*YAIE, "ps", "-w", env=env) as watch:
            watch.wait_for("no models; deploy one with")
            watch.press("\x03")
            assert watch.end() == 130
            assert "Traceback" not in watch.text
        assert "created" in read(env, "run", DEMO, "--prompt", "hi")
        assert "scaled to 0" in read(env, "scale", "yaie-demo", "--replicas", "0")
        up.press("\x03")
        assert up.end() == 0
        assert "Traceback" not in up.text
