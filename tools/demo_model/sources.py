"""The texts that the built-in model learns from: Debian packages with licences that allow it.

Each package is fetched with `apt-get download` (so apt checks its signature) and unpacked, not
installed. `python tools/demo_model/sources.py DIR` does that.
"""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Source:
    """One Debian package and the licence of the text that is used."""

    package: str
    licence: str
    folders: tuple[str, ...]


SOURCES = (
    Source("wordnet-base", "WordNet licence (permissive)", ("usr/share/wordnet",)),
    Source(
        "rust-doc",
        "MIT or Apache-2.0",
        tuple(
            f"usr/share/doc/rust-doc/html/{book}"
            for book in (
                "book",
                "cargo",
                "edition-guide",
                "nomicon",
                "reference",
                "rust-by-example",
            )
        ),
    ),
    Source(
        "python3.11-doc",
        "PSF-2.0",
        tuple(
            f"usr/share/doc/python3.11/html/{part}"
            for part in ("tutorial", "howto", "faq", "library", "reference", "using", "whatsnew")
        ),
    ),
    Source("postgresql-doc-15", "PostgreSQL", ("usr/share/doc/postgresql-doc-15/html",)),
    Source("sqlite3-doc", "public domain", ("usr/share/doc/sqlite3",)),
    Source("dict-jargon", "public domain", ("usr/share/dictd",)),
    Source("dict-devil", "public domain", ("usr/share/dictd",)),
)


def fetch(target: Path) -> None:
    """Download and unpack every package below `target` (one folder a package)."""
    target.mkdir(parents=True, exist_ok=True)
    for source in SOURCES:
        folder = target / source.package
        if folder.exists():
            continue
        subprocess.run(["apt-get", "download", "-qq", source.package], cwd=target, check=True)
        (archive,) = target.glob(f"{source.package}_*.deb")
        subprocess.run(["dpkg-deb", "-x", archive, folder], check=True)
        archive.unlink()
        print(f"{source.package}: {source.licence}")


if __name__ == "__main__":
    fetch(Path(sys.argv[1]))
