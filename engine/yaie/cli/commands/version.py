"""`yaie version`: the version of this installation."""

import argparse
from typing import TYPE_CHECKING

from yaie_api import __version__

if TYPE_CHECKING:
    from yaie.cli.main import Subparsers


def add_parser(subparsers: "Subparsers") -> None:
    parser = subparsers.add_parser("version", help="print the version")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    del args
    print(f"yaie {__version__}")
    return 0
