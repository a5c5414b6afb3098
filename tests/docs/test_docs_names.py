"""Flags, metrics, modules and files that the documentation names exist in the code."""

import argparse
import ast
import re
from pathlib import Path

import pytest

from docs.pages import NAMES, ROOT
from yaie.cli.main import COMMANDS, build_parser
from yaie_api import metrics
from yaie_operator.__main__ import parser as operator_parser
from yaie_router.config import parser_of as router_parser

PACKAGES = (
    "engine/yaie",
    "operator/yaie_operator",
    "local/yaie_local",
    "router/yaie_router",
    "api/yaie_api",
)
FOREIGN_FLAGS = {
    *("--server-side", "--set", "--for", "--all", "--all-namespaces", "--create-namespace"),
    *("--take-ownership", "--reset-then-reuse-values", "--namespace", "--logs", "--timeout"),
    *("--docker-server", "--from-literal", "--dry-run"),
    "--type",
    *("--fail", "--silent", "--reuse-values", "--previous", "--as", "--raw"),
    *("--embedding-model", "--install"),
}
"""Of kubectl, helm and curl, and of the programs in examples."""


def known_flags() -> set[str]:
    found = FOREIGN_FLAGS | operator_parser()._option_string_actions.keys()
    found |= router_parser({})._option_string_actions.keys()
    for name in COMMANDS:
        parser = build_parser(name)
        groups = parser._subparsers._group_actions  # type: ignore[union-attr]  # argparse's only way
        command: argparse.ArgumentParser = groups[0].choices[name]  # type: ignore[index, call-overload]
        found |= command._option_string_actions.keys() | parser._option_string_actions.keys()
    return found


@pytest.mark.parametrize("name", NAMES)
def test_flags_exist(name: str) -> None:
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", (ROOT / name).read_text()))
    assert named - known_flags() == set()


@pytest.mark.parametrize("name", NAMES)
def test_metrics_exist(name: str) -> None:
    named = set(
        re.findall(r"\byaie_(?:engine|router|operator)_[a-z_]+\b", (ROOT / name).read_text())
    )
    known = set(re.findall(r'"(yaie_[a-z_]+)"', Path(metrics.__file__).read_text()))
    assert named - known - {"yaie_operator", "yaie_router"} == set()


@pytest.mark.parametrize("name", NAMES)
def test_files_exist(name: str) -> None:
    roots = (
        "api|bench|charts|docs|engine|examples|images|kernels|local|manifests|operator|router"
        "|tests|tools"
    )
    for path in re.findall(rf"`((?:{roots})/[\w./-]+)`", (ROOT / name).read_text()):
        assert (ROOT / path).exists(), path


def test_modules_and_names_of_the_architecture_exist() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    named = re.findall(r"`((?:[a-z_]+\.)+[A-Za-z_]+)`", text)
    assert len(named) > 30
    for dotted in named:
        if dotted.endswith((".py", ".toml")) or dotted.startswith("spec."):
            continue
        assert is_defined(dotted), dotted


def is_defined(dotted: str) -> bool:
    """Whether a module, or a class or function of one, has this name in one of our packages."""
    first, _, rest = dotted.partition(".")
    own = [package for package in PACKAGES if package.endswith(f"/{first}")]
    tails = [(package, rest) for package in own] or [(package, dotted) for package in PACKAGES]
    return any(_in_package(ROOT / package, tail.split(".")) for package, tail in tails)


def _in_package(folder: Path, names: list[str]) -> bool:
    for i in range(len(names), -1, -1):
        path = folder.joinpath(*names[:i])
        for module in (path.with_suffix(".py"), path / "__init__.py"):
            if module.is_file() and all(name in _defined(module) for name in names[i:]):
                return True
    return folder.joinpath(*names).is_dir()


def _defined(module: Path) -> set[str]:
    tree = ast.parse(module.read_text())
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = {node.name for node in ast.walk(tree) if isinstance(node, kinds)}
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            found |= set(ast.literal_eval(node.value))
    return found
