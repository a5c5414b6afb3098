"""Writes docs/settings.md from the settings of the engine and the tables of foreign ones.

`--check` writes nothing and fails when the page is stale.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import pages

from yaie_api.engine_config import Described, settings
from yaie_api.foreign_settings.ollama import ENVIRONMENT, OLLAMA
from yaie_api.foreign_settings.verdict import SWITCH, Foreign
from yaie_api.foreign_settings.vllm import VLLM

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "settings.md"
HEAD = """\
# Settings of an engine

Every setting of `yaie serve`, `LLM(...)` and an engine's `spec.engine.args`. `LLM` takes them under
the names of the flags, with `_` for `-`. `tools/render_settings.py` writes this page from
`yaie_api.engine_config` and `yaie_api.foreign_settings`; do not edit it.

[vLLM's settings](#vllms-settings) · [Ollama's settings](#ollamas-settings)

| flag | takes | default | what it does |
|---|---|---|---|
"""
FOREIGN = """
## {program}'s settings

{about}

In brackets stand the values that are accepted, as they ask for what happens anyway, and after → the
setting of ours that the others become. Where there is none, they are refused with the sentence
beside them.

| settings | here |
|---|---|
"""
ABOUT_VLLM = """\
What vLLM 0.22 and earlier versions have and is not in the table above, as flags of `yaie serve`,
`yaie run-batch` and `yaie warmup` (with `-` for `_`, short forms too) and as keywords of `LLM`."""
ABOUT_OLLAMA = """\
Flags of `ollama run` and parameters of a Modelfile, as the same flags and keywords."""


def row(known: Described) -> str:
    limits = known.setting
    takes = ", ".join(known.choices) or limits.unit or ("on or off" if known.kind is bool else "")
    if limits.most is not None:
        takes += f", up to {limits.most:g}"
    flags = ", ".join(f"`{flag}`" for flag in (known.flag, *limits.flags))
    return f"| {flags} | {takes} | {known.told_default} | {limits.help} |\n"


def accepted(foreign: Foreign) -> str:
    """A setting with the values that change nothing."""
    if foreign.harmless is None or foreign.harmless == SWITCH:
        return f"`{foreign.name}` (any)"
    values = ", ".join(str(value).lower() or '""' for value in foreign.harmless)
    brackets = f" ({values})" if values else ""
    ours = f" → `{foreign.ours}`" if foreign.ours else ""
    return f"`{foreign.name}`{brackets}{ours}"


def foreign_rows(table: Mapping[str, Foreign]) -> str:
    """One row for each explanation."""
    groups: dict[str, list[str]] = {}
    for foreign in table.values():
        groups.setdefault(foreign.why, []).append(accepted(foreign))
    return "".join(f"| {', '.join(names)} | {why} |\n" for why, names in groups.items())


def page() -> str:
    ours = HEAD + "".join(row(known) for known in settings().values())
    vllm = FOREIGN.format(program="vLLM", about=ABOUT_VLLM) + foreign_rows(VLLM)
    ollama = FOREIGN.format(program="Ollama", about=ABOUT_OLLAMA) + foreign_rows(OLLAMA)
    variables = "".join(f"| `{name}` | {instead} |\n" for name, instead in ENVIRONMENT.items())
    return f"{ours}{vllm}{ollama}\n| variable | instead |\n|---|---|\n{variables}"


if __name__ == "__main__":
    sys.exit(pages.write(PAGE, page, __doc__))
