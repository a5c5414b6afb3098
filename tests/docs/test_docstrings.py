"""Public functions say in their docstrings what they raise, all in one form."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.pages import ROOT

PACKAGES = (
    "engine/yaie",
    "operator/yaie_operator",
    "local/yaie_local",
    "router/yaie_router",
    "api/yaie_api",
    "kernels/yaie_kernels",
)
UNSAID = {"AssertionError", "NotImplementedError", "SystemExit", "KeyboardInterrupt"}
"""Broken invariants, missing parts and ends of the program: nobody handles them by name."""

SECTION = re.compile(r"^Raises:\n((?:(?: {4}.*)?\n)+)", re.MULTILINE)
ENTRY = re.compile(r"^ {4}(\w+): \S", re.MULTILINE)

Function = ast.FunctionDef | ast.AsyncFunctionDef
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def public_functions(scope: ast.AST) -> Iterator[Function]:
    """Functions and methods without a leading underscore; functions in functions are private."""
    for node in ast.iter_child_nodes(scope):
        if isinstance(node, Function):
            if not node.name.startswith("_"):
                yield node
        else:
            yield from public_functions(node)


def raised(scope: ast.AST) -> set[str]:
    """Names of the classes that a function's own body raises. A lowercase name is a variable or a
    function that makes the error.
    """
    found = set()
    for node in ast.iter_child_nodes(scope):
        if isinstance(node, SCOPES):
            continue
        if isinstance(node, ast.Raise) and node.exc is not None:
            error = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            name = ast.unparse(error).rpartition(".")[2]
            if name[:1].isupper():
                found.add(name)
        found |= raised(node)
    return found


def said(docstring: str) -> set[str]:
    section = SECTION.search(docstring + "\n")
    return set(ENTRY.findall(section[1])) if section else set()


def unsaid(source: str) -> list[tuple[int, str, list[str]]]:
    """Line, name and missing exceptions of each public function that says too little."""
    return [
        (function.lineno, function.name, sorted(missing))
        for function in public_functions(ast.parse(source))
        if (missing := raised(function) - UNSAID - said(ast.get_docstring(function) or ""))
    ]


def python_files(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


@pytest.mark.parametrize("package", PACKAGES)
def test_public_functions_say_what_they_raise(package: str) -> None:
    files = python_files(package)
    assert files
    wrong = [
        f"{path.relative_to(ROOT)}:{line} {name}: `Raises:` lacks {', '.join(missing)}"
        for path in files
        for line, name, missing in unsaid(path.read_text())
    ]
    assert not wrong, "\n".join(wrong)


SAMPLE = '''
class Pool:
    async def take(self, error):
        """Take one.{section}"""
        try:
            if error:
                raise error
        except KeyError:
            raise
        for _ in "ab":
            raise errors.GoneError("gone") from error
        raise NotImplementedError

        def inner():
            raise ValueError

    def _private(self):
        raise GoneError
'''


@pytest.mark.parametrize(
    "section",
    [
        "",
        " Raises GoneError.",
        " Raises: GoneError.",
        "\n\n        Raises:\n            OtherError: no.\n\n        ",
        "\n\n        Raises:\n            OtherError: no.\n\n        GoneError: here.\n        ",
    ],
)
def test_any_other_form_is_found(section: str) -> None:
    assert unsaid(SAMPLE.format(section=section)) == [(3, "take", ["GoneError"])]


def test_an_entry_of_the_section_suffices() -> None:
    section = "\n\n        Raises:\n            GoneError: it is gone.\n\n        "
    assert unsaid(SAMPLE.format(section=section)) == []
