"""Reads WordNet's database files: the first (most frequent) sense of every lemma."""

import re
from dataclasses import dataclass, field
from pathlib import Path

_OFFENSIVE = re.compile(r"offensive|slur|obscen|disparag|vulgar|derogat|insulting")
_PARTS = {"noun": "noun", "verb": "verb", "adj": "adjective", "adv": "adverb"}


@dataclass(frozen=True)
class Sense:
    """One lemma in its most frequent sense."""

    word: str
    part: str
    definition: str
    examples: tuple[str, ...] = ()
    synonyms: tuple[str, ...] = ()
    kind_of: str | None = None
    tagged: int = field(default=0)
    """How often the lemma's senses were seen in WordNet's tagged texts."""


def _synsets(path: Path) -> dict[str, tuple[list[str], str | None, str]]:
    found = {}
    for line in path.read_text().splitlines():
        if line.startswith(" "):
            continue
        data, _, gloss = line.partition(" | ")
        fields = data.split()
        count = int(fields[3], 16)
        words = [re.sub(r"\(.*\)", "", fields[4 + 2 * i]).replace("_", " ") for i in range(count)]
        pointers = fields[5 + 2 * count :]
        parent = next(
            (pointers[i + 1] for i in range(len(pointers) - 3) if pointers[i] in {"@", "@i"}), None
        )
        found[fields[0]] = (words, parent, gloss.strip())
    return found


def _split_gloss(gloss: str) -> tuple[str, tuple[str, ...]]:
    examples = tuple(re.findall(r'"([^"]{12,160})"', gloss))
    definition = gloss.split('; "', maxsplit=1)[0].split('"', maxsplit=1)[0].strip(" ;:")
    return re.sub(r"^\([^)]*\)\s*", "", definition), examples


def senses(folder: Path) -> list[Sense]:
    """All lemmas with a readable definition."""
    found: list[Sense] = []
    for suffix, part in _PARTS.items():
        synsets = _synsets(folder / f"data.{suffix}")
        for line in (folder / f"index.{suffix}").read_text().splitlines():
            if line.startswith(" "):
                continue
            fields = line.split()
            pointers = int(fields[3])
            tagged = int(fields[5 + pointers])
            words, parent, gloss = synsets[fields[6 + pointers]]
            definition, examples = _split_gloss(gloss)
            word = next((w for w in words if w.lower() == fields[0].replace("_", " ")), None)
            if word is None or _OFFENSIVE.search(gloss):
                continue
            if not 8 <= len(definition) <= 220 or not definition.isascii():
                continue
            synonyms = tuple(w for w in words if w != word and w.isascii())
            kind = synsets[parent][0][0] if parent in synsets else None
            found.append(Sense(word, part, definition, examples, synonyms, kind, tagged))
    return found
