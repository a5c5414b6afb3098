"""docs/contributing/classes.md names every class of the core, the runtime and the operator."""

import ast
import re

from docs.pages import ROOT

PACKAGES = {
    "The core": "engine/yaie/core",
    "The runtime": "engine/yaie/runtime",
    "The operator": "operator/yaie_operator",
}
ROW = re.compile(r"^\| ([\w.]+) \| `(\w+)` \| (\S.*) \|$", re.MULTILINE)


def defined(folder: str) -> set[tuple[str, str]]:
    """(module, class) of each class statement, those inside functions included."""
    root = ROOT / folder
    return {
        (str(file.relative_to(root))[:-3].replace("/", "."), node.name)
        for file in root.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ClassDef)
    }


def test_every_class_is_listed_and_no_other() -> None:
    _, *parts = (ROOT / "docs/contributing/classes.md").read_text().split("\n## ")
    listed = {part.partition(",")[0]: set(ROW.findall(part)) for part in parts}
    assert set(listed) == set(PACKAGES)
    for title, folder in PACKAGES.items():
        assert {(module, name) for module, name, _ in listed[title]} == defined(folder), title


def test_what_is_said_to_be_in_the_glossary_is_there() -> None:
    text = (ROOT / "docs/contributing/classes.md").read_text()
    entries = (ROOT / "docs/glossary.md").read_text()
    glossary = set(re.findall(r"^\| \*\*(.+?)\*\*", entries, re.MULTILINE))
    for words in re.findall(r"\| glossary: ([\w ,]+)", text):
        assert set(words.strip().split(", ")) <= glossary, words
