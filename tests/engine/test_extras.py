"""What is said where a Python package is missing: one line with what to install."""

import subprocess
import sys

import pytest

RUN = "import sys; sys.modules[{name!r}] = None; {code}"
MAIN = "from yaie.cli.main import main; sys.exit(main({line!r}.split()))"


def told(package: str, code: str) -> tuple[int, list[str]]:
    """Exit status and the lines on standard error of a program that lacks a package."""
    text = RUN.format(name=package, code=code)
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stderr.splitlines()


@pytest.mark.parametrize(
    ("package", "line", "extra"),
    [
        ("zmq", "serve builtin://yaie-demo --port 0", "engine"),
        ("fastapi", "serve builtin://yaie-demo --port 0 --log-level warning", "engine"),
        ("zmq", "run-batch -i a -o b --model builtin://yaie-demo", "engine"),
        ("huggingface_hub", "pull org/name", "engine"),
        ("celpy", "run builtin://yaie-demo --prompt hi", "all"),
        ("celpy", "up builtin://yaie-demo", "all"),
    ],
)
def test_a_command_says_in_one_line_which_extra_it_needs(
    package: str, line: str, extra: str
) -> None:
    status, (sentence,) = told(package, MAIN.format(line=line))
    command = line.partition(" ")[0]
    assert status == 1
    assert sentence == (
        f"yaie: yaie {command} needs the Python package {package}, which is not installed. "
        f'In the folder of the project run: pip install -e ".[{extra}]"'
    )


def test_a_program_that_imports_yaie_is_told_the_same_without_an_inner_traceback() -> None:
    status, lines = told("torch", "import yaie; yaie.LLM")
    assert status == 1
    assert "yaie.LLM needs the Python package torch, which is not installed." in lines[-1]
    assert sum(line.startswith("Traceback") for line in lines) == 1


def test_a_module_of_ours_that_is_missing_is_a_bug_and_shown_as_one() -> None:
    status, lines = told("yaie.llm", "import yaie; yaie.LLM")
    assert status == 1
    assert "pip install" not in lines[-1]
