"""`yaie run-batch` as a shell sees it: what it says, and how it ends."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from yaie.cli.main import INTERRUPTED, main

WAITING = """
import sys, time
from yaie.cli.main import main
from yaie.server.batch import run

def run_file(*args, **options):
    print("up", flush=True)
    time.sleep(60)

run.run_file = run_file
sys.exit(main(["run-batch", "-i", "in", "-o", "out", "--model", "builtin://yaie-demo"]))
"""


def test_a_repeated_id_is_told_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("yaie.logging.setup", lambda *_: None)  # would outlive the test
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    line = json.dumps({"custom_id": "a", "url": "/v1/completions", "body": {"prompt": "a"}})
    source.write_text(f"{line}\n{line}\n")
    before = signal.getsignal(signal.SIGTERM)
    try:
        arguments = ["-i", str(source), "-o", str(target), "--model", "builtin://yaie-demo"]
        status = main(["run-batch", *arguments])
    finally:
        signal.signal(signal.SIGTERM, before)
    said = "yaie: Every line needs a custom_id of its own: 'a' on lines 1 and 2.\n"
    assert (status, capsys.readouterr().err) == (1, said)
    assert not target.exists()


def test_an_empty_file_is_no_failure(tmp_path: Path) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.touch()
    arguments = ["-i", str(source), "-o", str(target), "--model", "builtin://yaie-demo"]
    ran = subprocess.run(
        [sys.executable, "-m", "yaie", "run-batch", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (ran.returncode, ran.stdout) == (0, "")
    assert ran.stderr == f"0 requests, 0 failed, 0 tokens → {target}\n"
    assert target.read_bytes() == b""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_in_order_when_it_is_told_to(number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WAITING], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(number)
        _, said = process.communicate(timeout=30)
    assert (process.returncode, said) == (INTERRUPTED, "")
