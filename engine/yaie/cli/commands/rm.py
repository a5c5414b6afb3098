"""`yaie rm MODEL…`: delete downloaded models from this machine's disk."""

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from yaie.cli.main import Subparsers

DESCRIPTION = """\
Delete models of the hub from this machine's disk, with all revisions. Other programs that use the
hub's cache lose them too. `yaie delete` ends models of a `yaie up`, and keeps their files.
"""


def add_parser(subparsers: "Subparsers") -> None:
    parser = subparsers.add_parser(
        "rm", help="delete downloaded models from the disk", description=DESCRIPTION
    )
    parser.add_argument("models", nargs="+", metavar="MODEL", help="as `yaie ls` names them")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from yaie.checkpoint.download.cached import cache_folder, remove
    from yaie_api.download.amounts import in_bytes

    for name in args.models:
        size = remove(cache_folder(), name)
        print(f"{name} deleted ({in_bytes(size)})")
    return 0
