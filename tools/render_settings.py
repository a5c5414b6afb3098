"""Writes docs/settings.md from the settings of the engine.

`--check` writes nothing and fails when the page is stale.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import pages

from yaie_api.engine_config import Described, settings

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "settings.md"
HEAD = """\
# Settings of an engine

Every setting of `yaie serve`, `LLM(...)` and an engine's `spec.engine.args`. `LLM` takes them under
the names of the flags, with `_` for `-`. `tools/render_settings.py` writes this page from
`yaie_api.engine_config`; do not edit it.

| flag | takes | default | what it does |
|---|---|---|---|
"""


def row(known: Described) -> str:
    limits = known.setting
    takes = ", ".join(known.choices) or limits.unit or ("on or off" if known.kind is bool else "")
    if limits.most is not None:
        takes += f", up to {limits.most:g}"
    flags = ", ".join(f"`{flag}`" for flag in (known.flag, *limits.flags))
    return f"| {flags} | {takes} | {known.told_default} | {limits.help} |\n"


def page() -> str:
    return HEAD + "".join(row(known) for known in settings().values())


if __name__ == "__main__":
    sys.exit(pages.write(PAGE, page, __doc__))
