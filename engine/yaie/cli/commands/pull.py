"""`yaie pull MODEL`: download what a server of the model would download."""

import argparse
import os
import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

from yaie.cli.local.named_models import source_of
from yaie.cli.values import port
from yaie_api import termination
from yaie_api.errors import InvalidRequestError, YaieError

if TYPE_CHECKING:
    from yaie.checkpoint.download.progress import Downloaded
    from yaie.cli.main import Subparsers

DESCRIPTION = """\
Download a model of the hub or of a bucket: its settings, then the safetensors weights that its
index names, as `yaie serve` does. What has come is kept: the same command goes on where it was
stopped. A gated or private model needs a token in HF_TOKEN, a bucket AWS_ACCESS_KEY_ID and
AWS_SECRET_ACCESS_KEY; HF_HOME names the folder that models are kept in.
"""
INTERRUPTED = 130
DOWNLOADED: Final = ("hf://", "s3://")


def add_parser(subparsers: "Subparsers") -> None:
    parser = subparsers.add_parser(
        "pull", help="download a model of the hub", description=DESCRIPTION
    )
    parser.add_argument(
        "model", metavar="MODEL", help="ORG/NAME[@REVISION] of the hub, or s3://BUCKET/PATH"
    )
    parser.add_argument(
        "--into", metavar="DIR", type=Path, help="keep it below this folder, for example a volume"
    )
    parser.add_argument("--host", default="127.0.0.1", help="address of --port, %(default)s")
    parser.add_argument(
        "--port", type=port, metavar="PORT", help="answer GET /progress with how far it is"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Download a model and return the exit status.

    Raises:
        InvalidRequestError: there is no such model, or it is not downloaded at all.
        UnavailableError: the hub or the bucket cannot be reached; a retry can help.

    """
    name = source_of(args.model)
    if not name.startswith(DOWNLOADED):
        raise InvalidRequestError(f"{args.model} is on this machine: there is nothing to download")
    try:
        folder = _fetch(name, args)
    except YaieError as error:
        if args.into is not None:  # the command of a pod: others may run beside an engine
            termination.leave(error.message)
        raise
    print(f"{args.model}: {folder}")
    return 0


def _fetch(name: str, args: argparse.Namespace) -> Path:
    from yaie.checkpoint import source
    from yaie.checkpoint.download import volume
    from yaie.checkpoint.download.progress import LineTeller
    from yaie.logging import setup

    if args.into is not None:
        volume.use(args.into)
        # The first process of a container ignores a SIGTERM that it does not handle.
        signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    setup("error")
    teller, latest = LineTeller(), volume.Latest()

    def tell(state: "Downloaded") -> None:
        teller(state)
        latest(state)

    with ExitStack() as stack:
        stack.callback(teller.end)
        stack.enter_context(volume.told_on(args.host, args.port, latest))
        try:
            folder = source.resolve(name, report=tell)
        except KeyboardInterrupt:
            teller.end()
            print("yaie: stopped; the same command goes on from here", file=sys.stderr)
            sys.stderr.flush()
            os._exit(INTERRUPTED)  # threads of the download would be waited for
    if args.into is not None:
        termination.leave(volume.result(args.into, folder).text())
    return folder
