"""The forms, the template and the workflow under .github are well formed, and every command and
file that they name exists.
"""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs.pages import ROOT
from yaie.cli.main import COMMANDS

FOLDER = ROOT / ".github"
FORMS = ("bug.yml", "feature.yml")
FILES = sorted(path for path in FOLDER.rglob("*") if path.is_file())
NAMES = [str(path.relative_to(ROOT)) for path in FILES]
TARGETS = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
RUN = re.compile(r'(sudo --preserve-env env "PATH=\$PATH" )?(\.ci/run|make (?P<target>[a-z0-9-]+))')
"""All that a step of the workflow may run."""
ACTION = re.compile(r"actions/[a-z-]+@v[1-9][0-9]*")


def load(name: str) -> Any:
    return yaml.safe_load((FOLDER / name).read_text())


def steps() -> list[dict[str, Any]]:
    return [step for job in load("workflows/ci.yml")["jobs"].values() for step in job["steps"]]


def quoted(path: Path) -> list[str]:
    """What a file says in backticks."""
    return re.findall(r"`([^`\n]+)`", path.read_text())


def test_every_file_is_known() -> None:
    assert NAMES == [
        ".github/ISSUE_TEMPLATE/bug.yml",
        ".github/ISSUE_TEMPLATE/config.yml",
        ".github/ISSUE_TEMPLATE/feature.yml",
        ".github/pull_request_template.md",
        ".github/workflows/ci.yml",
    ]
    assert load("ISSUE_TEMPLATE/config.yml") == {"blank_issues_enabled": False}


@pytest.mark.parametrize("name", FORMS)
def test_a_form_asks_questions_that_have_ids_and_labels(name: str) -> None:
    form = load(f"ISSUE_TEMPLATE/{name}")
    assert form.keys() == {"name", "description", "labels", "body"}
    questions = [part for part in form["body"] if part["type"] != "markdown"]
    assert {part["type"] for part in questions} <= {"input", "textarea", "dropdown"}
    assert all(part["attributes"]["label"] for part in questions)
    ids = [part["id"] for part in questions]
    assert len(ids) == len(set(ids))


def test_a_bug_comes_with_what_is_needed_to_repeat_it() -> None:
    body = load("ISSUE_TEMPLATE/bug.yml")["body"]
    ids = {part["id"] for part in body if "id" in part}
    required = {part["id"] for part in body if part.get("validations", {}).get("required")}
    assert ids >= {"version", "command", "log", "gpu"}
    assert required >= {"version", "command", "gpu"}


@pytest.mark.parametrize("name", NAMES)
def test_commands_and_files_that_are_named_exist(name: str) -> None:
    for text in quoted(ROOT / name):
        program, _, rest = text.partition(" ")
        if program == "make":
            assert rest in TARGETS, text
        elif program == "yaie":
            assert rest.split()[0] in COMMANDS, text
        elif re.fullmatch(r"[\w./-]+\.md|[\w.-]+/[\w./-]+", text):
            assert (ROOT / text).exists(), text


def test_the_workflow_only_calls_what_the_project_has() -> None:
    for step in steps():
        if "uses" in step:
            assert ACTION.fullmatch(step["uses"]), step
            continue
        assert step.keys() <= {"name", "run"}, step
        found = RUN.fullmatch(step["run"])
        assert found, step
        assert found["target"] is None or found["target"] in TARGETS, step
    assert (ROOT / ".ci/run").exists()


def test_files_that_the_workflow_reads_exist() -> None:
    settings = [item for step in steps() for item in step.get("with", {}).items()]
    paths = [value for key, value in settings if key.endswith(("-file", "-path"))]
    assert len(paths) == 2
    assert all((ROOT / path).is_file() for path in paths)
