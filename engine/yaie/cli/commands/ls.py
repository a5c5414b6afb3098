"""`yaie ls`: the models on this machine's disk."""

import argparse
import json
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from yaie.checkpoint.download.cached import CachedModel
    from yaie.cli.main import Subparsers

HEADING = ("NAME", "REVISION", "SIZE", "MODIFIED")
DESCRIPTION = """\
List the models on this machine's disk: those of the hub's cache, which HF_HOME names, and the
built-in ones. `yaie ps` lists the models that run.
"""


def add_parser(subparsers: "Subparsers") -> None:
    parser = subparsers.add_parser(
        "ls", help="list the models on this machine's disk", description=DESCRIPTION
    )
    parser.add_argument("-o", "--output", choices=("json",), help="default: a table")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from yaie.checkpoint.download.cached import cache_folder, cached_models
    from yaie.cli.commands.local.ps import table

    models = cached_models(cache_folder())
    if args.output == "json":
        print(json.dumps([asdict(model) for model in models], indent=2))
        return 0
    now_s = time.time()
    print(table([HEADING, *(row(model, now_s) for model in models)]))
    return 0


def row(model: "CachedModel", now_s: float) -> tuple[str, ...]:
    """The cells of a model; a download that did not end is marked."""
    from yaie_api.download.amounts import in_bytes

    built_in = model.name.startswith("builtin:")
    size = in_bytes(model.n_bytes)
    return (
        model.name,
        model.revision[:12] or "-",
        size if model.is_complete else f"{size} (incomplete)",
        "-" if built_in else ago(now_s - model.modified_s),
    )


def ago(seconds: float) -> str:
    """An age in words: `5 minutes ago`, `3 days ago`."""
    for unit, length_s in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if (count := int(seconds // length_s)) >= 1:
            return f"{count} {unit}{'s' if count > 1 else ''} ago"
    return "just now"
