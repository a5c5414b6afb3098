"""The command line of tools that write one page from the code."""

import argparse
from collections.abc import Callable
from pathlib import Path


def write(path: Path, page: Callable[[], str], description: str) -> int:
    """Write the page, or with `--check` only compare it; returns the exit status."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing, fail when stale")
    if parser.parse_args().check:
        return 0 if path.read_text() == page() else 1
    path.write_text(page())
    return 0
