"""`yaie pull MODEL`: download what a server of the model would download."""

import argparse
import os
import sys
from typing import TYPE_CHECKING

from yaie.cli.local.named_models import source_of
from yaie_api.errors import InvalidRequestError

if TYPE_CHECKING:
    from yaie.cli.main import Subparsers

DESCRIPTION = """\
Download a model of the hub: its settings, then the safetensors weights that its index names, as
`yaie serve` does. What has come is kept: the same command goes on where it was stopped. A gated or
private model needs a token in HF_TOKEN; HF_HOME names the folder that models are kept in.
"""
INTERRUPTED = 130


def add_parser(subparsers: "Subparsers") -> None:
    parser = subparsers.add_parser(
        "pull", help="download a model of the hub", description=DESCRIPTION
    )
    parser.add_argument("model", metavar="MODEL", help="ORG/NAME[@REVISION] of the hub")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Download a model and return the exit status.

    Raises:
        InvalidRequestError: there is no such model, or it is not of the hub.

    """
    name = source_of(args.model)
    if not name.startswith("hf://"):
        raise InvalidRequestError(f"{args.model} is on this machine: there is nothing to download")
    from yaie.checkpoint import source
    from yaie.checkpoint.download.progress import LineTeller
    from yaie.logging import setup

    setup("error")
    teller = LineTeller()
    try:
        folder = source.resolve(name, report=teller)
    except KeyboardInterrupt:
        teller.end()
        print("yaie: stopped; the same command goes on from here", file=sys.stderr)
        sys.stderr.flush()
        os._exit(INTERRUPTED)  # threads of the download would be waited for
    finally:
        teller.end()
    print(f"{args.model}: {folder}")
    return 0
