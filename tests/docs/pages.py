"""The pages of the documentation, and their parts."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = (
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "charts/yaie/README.md",
    ROOT / "examples/README.md",
    ROOT / "images/README.md",
)
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def blocks(page: Path, language: str) -> list[str]:
    """Fenced blocks of a language, in order."""
    return [text for kind, text in _FENCE.findall(page.read_text()) if kind == language]


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return _FENCE.sub("", page.read_text())


def links(page: Path) -> Iterator[str]:
    yield from _LINK.findall(prose(page))


def anchors(page: Path) -> set[str]:
    """Addresses of the headings, as hosting services make them."""
    titles = (re.sub(r"\[(.+?)\]\(.+?\)", r"\1", title) for title in _HEADING.findall(prose(page)))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
