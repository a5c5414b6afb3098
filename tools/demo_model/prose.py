"""Turns the unpacked packages into documents of plain English paragraphs."""

import gzip
import html.parser
import re
from collections.abc import Iterator
from pathlib import Path

from sources import SOURCES

_TYPOGRAPHIC = {0x201C: '"', 0x201D: '"', 0x2018: "'", 0x2019: "'", 0x2013: "-", 0x2014: "-"}
_KEEP = {"p", "h1", "h2", "h3", "h4", "li", "dd", "dt"}
_SKIP = {"script", "style", "nav", "pre", "code-block", "table", "header", "footer", "button"}


class _Paragraphs(html.parser.HTMLParser):
    """Collects the text of paragraphs and headings; leaves code, tables and navigation out."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []
        self._skip = 0
        self._tag = ""
        self._text: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002 - the base class calls it so
        if tag in _SKIP:
            self._skip += 1
        elif tag in _KEEP:
            self._flush()
            self._tag = tag

    def handle_endtag(self, tag: str) -> None:
        if tag in _SKIP:
            self._skip = max(0, self._skip - 1)
        elif tag == self._tag:
            self._flush()
            self._tag = ""

    def handle_data(self, data: str) -> None:
        if not self._skip and self._tag:
            self._text.append(data)

    def _flush(self) -> None:
        text = clean("".join(self._text))
        if text:
            self.found.append((self._tag, text))
        self._text = []


def clean(text: str) -> str:
    """One line of plain ASCII-like text; typographic quotes and dashes become simple ones."""
    text = re.sub(r"\s+", " ", text.translate(_TYPOGRAPHIC)).strip()
    return text.encode("ascii", "ignore").decode()


def is_prose(text: str) -> bool:
    """Whether a paragraph reads as English: long enough, mostly letters, ends a sentence."""
    if len(text) < 60 or text[-1] not in '.!?:"':
        return False
    letters = sum(character.isalpha() or character == " " for character in text)
    return letters / len(text) > 0.9


def html_document(path: Path) -> list[tuple[str, str]]:
    """(tag, text) of the headings and prose paragraphs of one page."""
    parser = _Paragraphs()
    parser.feed(path.read_text(errors="ignore"))
    return [(tag, text) for tag, text in parser.found if tag.startswith("h") or is_prose(text)]


def dictionary_entries(path: Path) -> Iterator[str]:
    """Entries of a dictd database (gzip-compatible), one paragraph each."""
    text = gzip.decompress(path.read_bytes()).decode(errors="ignore")
    for entry in re.split(r"\n(?=\S)", text):
        yield clean(entry)


def documents(root: Path) -> Iterator[list[tuple[str, str]]]:
    """Every document of the prose packages: a list of (tag, text)."""
    for source in SOURCES:
        for folder in source.folders:
            base = root / source.package / folder
            for path in sorted(base.rglob("*.html")):
                if page := html_document(path):
                    yield page
            for path in sorted(base.glob("*.dict.dz")):
                entries = [entry for entry in dictionary_entries(path) if len(entry) > 80]
                for start in range(0, len(entries), 8):
                    yield [("p", entry) for entry in entries[start : start + 8]]
