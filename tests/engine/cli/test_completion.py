"""What the key offers in a shell: bash itself completes here, and zsh where it is installed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.running_up import SCRIPT, model_file, up
from yaie.cli.main import COMMANDS

COMPLETE = """
source <(yaie completion bash)
COMP_WORDS=({words})
COMP_CWORD=$(({count} - 1))
_yaie
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture
def shell(tmp_path: Path) -> dict[str, str]:
    """An environment in which `yaie` is this one, and nothing runs."""
    program = tmp_path / "bin" / "yaie"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {SCRIPT} "$@"\n')
    program.chmod(0o755)
    path = f"{program.parent}:{os.environ['PATH']}"
    return os.environ | {"PATH": path, "XDG_STATE_HOME": str(tmp_path / "state")}


def completed(shell: dict[str, str], *words: str) -> list[str]:
    """What bash offers for the last of the words."""
    quoted = " ".join(f"'{word}'" for word in ("yaie", *words))
    text = COMPLETE.format(words=quoted, count=len(words) + 1)
    done = subprocess.run(
        ["bash", "--norc", "-c", text],
        env=shell,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_commands_are_completed(shell: dict[str, str]) -> None:
    assert set(completed(shell, "")) == {*COMMANDS, "--help", "--version"}
    assert completed(shell, "s") == ["serve", "scale"]
    assert completed(shell, "run-") == ["run-batch"]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("serve", "builtin://yaie-demo", "--max-model"), ["--max-model-len"]),
        (("serve", "--device", ""), ["auto", "cpu", "cuda"]),
        (("plan", "--gpu", "h"), ["h100", "h100-nvl", "h20", "h200"]),
        (("explain", "--kube"), ["--kubeconfig"]),
        (("doctor", "--no-"), ["--no-cluster", "--no-machine"]),
        (("serve", "--log-format", "j"), ["json"]),
        (("logs", "--fol"), ["--follow"]),
        (("ps", "-o", ""), ["wide", "json", "yaml"]),
        (("completion", ""), ["bash", "zsh"]),
    ],
)
def test_flags_and_their_choices_are_completed(
    shell: dict[str, str], words: tuple[str, ...], offered: list[str]
) -> None:
    assert completed(shell, *words)[: len(offered)] == offered


@pytest.mark.parametrize("words", [("up", "-f", ""), ("nope", ""), ("scale", "--replicas", "")])
def test_nothing_is_offered_where_the_shell_knows_better(
    shell: dict[str, str], words: tuple[str, ...]
) -> None:
    assert completed(shell, *words) == []


def test_models_that_run_are_offered_by_name(shell: dict[str, str], tmp_path: Path) -> None:
    state = Path(shell["XDG_STATE_HOME"]) / "yaie"
    with up(state, "-f", str(model_file(tmp_path, "talker"))) as running:
        running.wait_for("Ctrl-C")
        assert completed(shell, "logs", "tal") == ["talker"]
        assert completed(shell, "scale", "tal") == ["talker"]


def test_the_script_is_valid_zsh(shell: dict[str, str]) -> None:
    zsh = shutil.which("zsh")
    if zsh is None:
        pytest.skip("zsh is not installed")
    text = "autoload -U compinit; compinit -D; source <(yaie completion zsh); whence -w _yaie"
    done = subprocess.run(
        [zsh, "-f", "-c", text], env=shell, capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout.strip() == "_yaie: function"
