"""Models from object storage: what is fetched, what is refused, and what the user is told."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.checkpoint.fake_bucket import SECRET, Bucket, storing
from fakes.running_up import until

pytest.importorskip("obstore")

WEIGHTS = os.urandom(6 * 2**20)
FILES = {
    "config.json": json.dumps({"model_type": "llama"}).encode(),
    "tokenizer.json": b"{}",
    "model.safetensors": WEIGHTS,
}
UNWANTED = {"pytorch_model.bin": b"\x80\x04.", "README.md": b"# Tiny"}


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    with storing(Bucket()) as running:
        yield running


class Shell:
    """Runs commands with a bucket and a cache of their own."""

    def __init__(self, bucket: Bucket, home: Path) -> None:
        self.home = home
        foreign = {"HF_HUB_CACHE", "AWS_SESSION_TOKEN", "AWS_PROFILE"}
        own = {"HF_HOME": str(home), "COLUMNS": "100", **bucket.environ}
        self.env = {k: v for k, v in os.environ.items() if k not in foreign} | own

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "yaie", *arguments]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env=self.env, stdout=pipe, stderr=pipe, text=True)

    def pull(self, source: str = "s3://models/org/tiny") -> tuple[int, str, str]:
        with self.start("pull", source) as process:
            out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    def folder(self) -> Path:
        status, out, err = self.pull()
        assert status == 0, err
        return Path(out.split(": ")[1].strip())

    def partial(self) -> int:
        return sum(path.stat().st_size for path in self.home.rglob("*.partial"))


@pytest.fixture
def shell(bucket: Bucket, tmp_path: Path) -> Shell:
    return Shell(bucket, tmp_path / "home")


def push(bucket: Bucket, files: dict[str, bytes], path: str = "org/tiny/") -> None:
    bucket.files |= {f"{path}{name}": body for name, body in files.items()}


def test_settings_and_weights_are_fetched_and_nothing_else(bucket: Bucket, shell: Shell) -> None:
    push(bucket, FILES | UNWANTED | {"original/params.json": b"{}"})
    folder = shell.folder()
    assert {path.name for path in folder.iterdir()} == set(FILES)
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    assert shell.folder() == folder
    assert len(bucket.ranges("model.safetensors")) == 1


def test_a_killed_download_goes_on_where_it_was(bucket: Bucket, shell: Shell) -> None:
    push(bucket, FILES)
    bucket.pace_s = 0.5
    with shell.start("pull", "s3://models/org/tiny") as process:
        until(lambda: shell.partial() >= 2**21)
        process.kill()
        process.communicate()
    bucket.pace_s, begun = 0.0, shell.partial()
    assert (shell.folder() / "model.safetensors").read_bytes() == WEIGHTS
    assert bucket.ranges("model.safetensors")[-1] == f"bytes={begun}-"


def test_a_connection_that_breaks_off_is_taken_up_again(bucket: Bucket, shell: Shell) -> None:
    push(bucket, FILES)
    bucket.break_once.add("model.safetensors")
    assert (shell.folder() / "model.safetensors").read_bytes() == WEIGHTS


def test_another_version_is_another_folder(bucket: Bucket, shell: Shell) -> None:
    push(bucket, FILES)
    first = shell.folder()
    push(bucket, {"model.safetensors": b"new"})
    second = shell.folder()
    assert first != second
    assert (second / "model.safetensors").read_bytes() == b"new"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("s3://models/none", "There is no model at s3://models/none"),
        ("s3://other/tiny", "There is no model at s3://other/tiny"),
        ("s3://models/../x", "does not name a model"),
    ],
)
def test_what_is_not_there_is_told(bucket: Bucket, shell: Shell, source: str, said: str) -> None:
    push(bucket, FILES)
    status, _, err = shell.pull(source)
    assert (status, said in err.splitlines()[-1]) == (1, True), err
    assert "Traceback" not in err


def test_wrong_credentials_are_told_and_never_shown(bucket: Bucket, shell: Shell) -> None:
    push(bucket, FILES)
    shell.env["AWS_ACCESS_KEY_ID"] = "AKIDWRONG"
    status, out, err = shell.pull()
    assert status == 1
    assert "may not be read with these credentials" in err
    assert "spec.model.secretRef" in err
    assert SECRET not in out + err
    assert "AKIDWRONG" not in out + err


def test_a_model_in_a_format_that_is_refused_is_told(bucket: Bucket, shell: Shell) -> None:
    push(bucket, {k: v for k, v in FILES.items() if "safetensors" not in k} | UNWANTED)
    assert "pickled weights only" in shell.pull()[2]


def test_storage_that_fails_is_told_and_nothing_is_lost(bucket: Bucket, shell: Shell) -> None:
    bucket.is_down = True
    status, _, err = shell.pull()
    assert status == 1
    assert "could not be downloaded" in err
