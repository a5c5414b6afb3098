"""pull, ls and rm, as a user types them, against a hub on the loopback."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.checkpoint.fake_hub import Hub, serving
from fakes.running_up import until
from ports import free_port
from yaie.checkpoint.download.cached import cache_folder, remove
from yaie.checkpoint.download.progress import Downloaded, Meter
from yaie.checkpoint.source import BUILTIN
from yaie.cli.commands.ls import ago
from yaie_api.download.amounts import duration, in_bytes
from yaie_api.download.messages import Progress, Result, parse_progress
from yaie_api.errors import InvalidRequestError

NAME = "org/tiny"
WEIGHTS = os.urandom(6 * 2**20)
FILES = {
    "config.json": json.dumps({"model_type": "llama"}).encode(),
    "tokenizer.json": b"{}",
    "model.safetensors": WEIGHTS,
}


@pytest.fixture
def hub() -> Iterator[Hub]:
    with serving(Hub()) as running:
        yield running


class Shell:
    """Runs commands with a hub and a cache of their own."""

    def __init__(self, hub: Hub, home: Path) -> None:
        self.home = home
        own = {"HF_ENDPOINT": hub.url, "HF_HOME": str(home), "COLUMNS": "100"}
        foreign = {"HF_TOKEN", "HF_HUB_OFFLINE", "HF_HUB_CACHE"}
        self.env = {k: v for k, v in os.environ.items() if k not in foreign} | own

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "yaie", *arguments]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env=self.env, stdout=pipe, stderr=pipe, text=True)

    def run(self, *arguments: str) -> tuple[int, str, str]:
        """Exit status, standard output and standard error."""
        with self.start(*arguments) as process:
            out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    def partial(self) -> int:
        """Bytes of a file that has come in part."""
        return sum(path.stat().st_size for path in self.home.rglob("*.partial"))


@pytest.fixture
def shell(hub: Hub, tmp_path: Path) -> Shell:
    return Shell(hub, tmp_path / "home")


def test_a_pulled_model_is_listed_and_can_be_removed(hub: Hub, shell: Shell) -> None:
    hub.pace_s = 0.2
    commit = hub.push(NAME, FILES | {"pytorch_model.bin": b"unwanted"})
    status, out, err = shell.run("pull", NAME)
    assert (status, err.startswith("org/tiny: ")) == (0, True), err
    assert " of 6.3 MB (" in err
    assert "/s, " in err
    assert out.startswith(f"{NAME}: {shell.home}")
    assert hub.fetched() == set(FILES)
    heading, line, *_ = shell.run("ls")[1].splitlines()
    assert heading.split() == ["NAME", "REVISION", "SIZE", "MODIFIED"]
    assert line.split() == [NAME, commit[:12], "6.3", "MB", "just", "now"]
    listed = json.loads(shell.run("ls", "-o", "json")[1])
    assert listed[0] | {"modified_s": 0} == {
        "name": NAME, "revision": commit, "refs": ["main"], "is_complete": True, "modified_s": 0,
        "n_bytes": sum(map(len, FILES.values())),
    }  # fmt: skip
    assert shell.run("rm", NAME)[1] == f"{NAME} deleted (6.3 MB)\n"
    assert NAME not in shell.run("ls")[1]
    assert shell.run("rm", NAME)[2] == (
        f"yaie: {NAME} is not on this machine; `yaie ls` lists what is\n"
    )


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_download_that_was_ended_goes_on_where_it_was(
    hub: Hub, shell: Shell, number: signal.Signals
) -> None:
    hub.push(NAME, FILES)
    hub.pace_s = 0.5
    with shell.start("pull", NAME) as process:
        until(lambda: shell.partial() >= 2**21)
        process.send_signal(number)
        _, err = process.communicate(timeout=10)
    assert process.returncode == (-9 if number == signal.SIGKILL else 130)
    assert ("the same command goes on from here" in err) is (number == signal.SIGINT)
    assert "(incomplete)" in shell.run("ls")[1]
    hub.pace_s, begun = 0.0, shell.partial()
    status, out, _ = shell.run("pull", NAME)
    assert status == 0
    assert hub.ranges("model.safetensors") == [None, f"bytes={begun}-"]
    folder = Path(out.split(": ")[1].strip())
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    assert shell.partial() == 0


def test_a_part_that_was_damaged_is_fetched_again(hub: Hub, shell: Shell) -> None:
    hub.push(NAME, FILES)
    hub.pace_s = 0.5
    with shell.start("pull", NAME) as process:
        until(lambda: shell.partial() >= 2**20)
        process.kill()
        process.communicate()
    (part,) = shell.home.rglob("*.partial")
    part.write_bytes(bytes(2**20))
    hub.pace_s = 0.0
    folder = Path(shell.run("pull", NAME)[1].split(": ")[1].strip())
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (None, "yaie: There is no model org/none on the hub, or it is private."),
        (401, "yaie: There is no model org/none on the hub, or it is private."),
        (404, "yaie: There is no model org/none on the hub, or it is private."),
        (503, "yaie: The hub answered with status 503 for org/none. Try again later"),
    ],
)
def test_what_the_hub_refuses_is_told_in_a_sentence(
    hub: Hub, shell: Shell, status: int | None, said: str
) -> None:
    hub.broken_status = status
    code, out, err = shell.run("pull", "org/none")
    assert (code, out) == (1, "")
    assert err.splitlines()[-1].startswith(said)
    assert "Traceback" not in err


def test_a_plan_downloads_the_settings_of_a_model_and_no_weights(hub: Hub, shell: Shell) -> None:
    native = (BUILTIN / "yaie-demo" / "config.json").read_bytes()
    hub.push(NAME, FILES | {"config.json": native})
    status, out, err = shell.run("plan", NAME, "--no-cluster", "--gpu", "l4")
    assert (status, err) == (0, "")
    assert out.startswith("hf://org/tiny: LlamaForCausalLM, native\n  parameters   5,770,496\n")
    assert hub.fetched() == {"config.json", "tokenizer.json"}
    shell.env["HF_HUB_OFFLINE"] = "1"
    assert shell.run("plan", NAME, "--no-cluster", "--gpu", "l4")[1] == out


@pytest.mark.parametrize("name", ["builtin://yaie-demo", "nope"])
def test_what_is_not_of_the_hub_cannot_be_pulled(shell: Shell, name: str) -> None:
    code, _, err = shell.run("pull", name)
    assert (code, err.startswith("yaie: ")) == (1, True)


def test_a_name_that_leaves_the_cache_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError):
        remove(tmp_path, "../../etc")


@pytest.mark.parametrize(
    ("settings", "folder"),
    [
        ({"HF_HUB_CACHE": "/c"}, "/c"),
        ({"HF_HOME": "/h"}, "/h/hub"),
        ({"XDG_CACHE_HOME": "/x"}, "/x/huggingface/hub"),
    ],
)
def test_the_cache_is_where_the_hubs_library_has_it(
    settings: dict[str, str], folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    assert cache_folder() == Path(folder)


def test_speed_is_an_average_of_the_last_seconds_and_says_what_is_left() -> None:
    now = 0.0
    meter = Meter(NAME, 1000, clock=lambda: now)
    meter.stored(500)  # of an earlier try
    for _ in range(4):
        now += 1.0
        meter.stored(50)
        meter.received(50)
        state = meter.state()
    assert state == Downloaded(NAME, 700, 1000, 50.0)
    assert str(state) == "700 B of 1.0 kB (70 %), 50 B/s, 6 s left"
    now += 60.0
    meter.state()
    now += 1.0
    assert meter.state().bytes_per_s == 0.0


def test_sizes_and_times_are_short() -> None:
    assert [in_bytes(n) for n in (0, 999, 2.5e6, 1.2e9)] == ["0 B", "999 B", "2.5 MB", "1.20 GB"]
    assert [duration(s) for s in (9.6, 99, 130, 12000)] == ["10 s", "99 s", "2 min", "3 h 20 min"]
    assert [ago(s) for s in (5, 60, 7300, 3e5)] == [
        "just now", "1 minute ago", "2 hours ago", "3 days ago",
    ]  # fmt: skip


def test_a_volume_is_filled_and_its_folder_told_to_the_operator(
    hub: Hub, shell: Shell, tmp_path: Path
) -> None:
    commit = hub.push(NAME, FILES)
    hub.pace_s, port = 0.3, free_port()
    shell.env["YAIE_TERMINATION_LOG"] = str(tmp_path / "message")
    volume = tmp_path / "volume"
    flags = ("--into", str(volume), "--port", str(port))
    with shell.start("pull", f"hf://{NAME}", *flags) as process:
        seen = until(lambda: asked(port, lambda told: told.total_bytes and told.bytes_per_second))
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert 0 < seen.bytes < seen.total_bytes == len(WEIGHTS)
    found = Result.parse((tmp_path / "message").read_text())
    assert found == Result(
        f"hub/models--org--tiny/snapshots/{commit}", commit, sum(map(len, FILES.values()))
    )
    assert out.strip().endswith(str(volume / found.folder))
    assert (volume / found.folder / "model.safetensors").read_bytes() == WEIGHTS
    assert not shell.home.exists()


def test_a_volume_that_cannot_be_filled_says_why(hub: Hub, shell: Shell, tmp_path: Path) -> None:
    hub.push(NAME, FILES)
    hub.repositories[NAME].gated = True
    shell.env["YAIE_TERMINATION_LOG"] = str(tmp_path / "message")
    status, _, _ = shell.run("pull", NAME, "--into", str(tmp_path / "volume"))
    assert status == 1
    assert "org/tiny is gated" in (tmp_path / "message").read_text()


def test_the_first_process_of_a_pod_ends_when_it_is_told_to(
    hub: Hub, shell: Shell, tmp_path: Path
) -> None:
    hub.push(NAME, FILES)
    hub.pace_s, shell.home = 0.5, tmp_path
    with shell.start("pull", NAME, "--into", str(tmp_path / "volume")) as process:
        until(lambda: shell.partial() >= 2**20)
        process.terminate()
        process.communicate(timeout=5)
    assert process.returncode == 130


def asked(port: int, is_enough: Callable[[Progress], object]) -> Progress | None:
    """What a download on this port says, if it answers and that is enough."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/progress", timeout=2) as answer:
            told = parse_progress(answer.read())
    except OSError:
        return None
    return told if told is not None and is_enough(told) else None
