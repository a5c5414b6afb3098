"""Writes charts/yaie/files/dashboards/*.json, Grafana's dashboards, from `tools/dashboards`.

`--check` writes nothing and fails when one is stale.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from dashboards.engine import engine
from dashboards.fleet import fleet
from dashboards.model import model
from dashboards.operator import operator

FOLDER = Path(__file__).parents[1] / "charts" / "yaie" / "files" / "dashboards"


def files() -> Iterator[tuple[Path, str]]:
    """Every dashboard's file, with its content."""
    for board in (fleet(), model(), engine(), operator()):
        yield FOLDER / f"{board['uid']}.json", json.dumps(board, indent=1) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing, fail when stale")
    check = parser.parse_args().check
    stale = [(path, text) for path, text in files() if _stored(path) != text]
    for path, text in stale:
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        print(f"{'stale' if check else 'wrote'}: {path.name}")
    return 1 if check and stale else 0


def _stored(path: Path) -> str:
    return path.read_text() if path.is_file() else ""


if __name__ == "__main__":
    sys.exit(main())
