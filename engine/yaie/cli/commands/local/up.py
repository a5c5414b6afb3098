"""`yaie up MODEL…` or `-f FILE…`: run InferenceModels on this machine, without a cluster."""

import argparse
import os
from typing import TYPE_CHECKING

from yaie.cli.local.client import add_state_flags, state_folder
from yaie.cli.local.files import add_files_flag, load
from yaie.cli.local.front import add_front_flags, front_of
from yaie.cli.local.named_models import MODEL_HELP, named_models
from yaie.cli.values import not_negative, port

if TYPE_CHECKING:
    from yaie.cli.main import Subparsers

DESCRIPTION = """\
Run InferenceModels on this machine: the operator, a router and the engines as processes, behind one
OpenAI-compatible API and a page for the browser. Models are named, or described in files with -f.
Objects are kept in the state folder; `yaie up` alone runs what is stored there, or waits for `yaie
apply`. Ctrl-C ends everything. A COMMAND after `--` runs when all models are ready, with
YAIE_ENDPOINT set, and everything ends with it.
"""
USAGE = "yaie up [MODEL ...] [-f FILE ...] [FLAGS] [-- COMMAND ...]"


def add_parser(subparsers: "Subparsers") -> None:
    parser = subparsers.add_parser(
        "up",
        help="run InferenceModels on this machine, without a cluster",
        description=DESCRIPTION,
        usage=USAGE,
    )
    parser.takes_command = True
    parser.add_argument("models", nargs="*", metavar="MODEL", help=MODEL_HELP)
    add_files_flag(parser, required=False)
    flag = parser.add_argument
    flag(
        "--port",
        type=port,
        default=8000,
        help="port of the API; 0 picks a free one (default: %(default)s)",
    )
    add_front_flags(parser)
    add_state_flags(parser)
    flag(
        "--timeout",
        type=not_negative,
        metavar="SECONDS",
        help="give up if not every model is ready by then (default: wait)",
    )
    flag(
        "--log-level",
        default="warning",
        choices=["debug", "info", "warning", "error"],
        help="least severity that is logged (default: %(default)s)",
    )
    flag(
        "--log-format",
        default="auto",
        choices=["auto", "text", "json"],
        help="auto: text on a terminal, JSON lines otherwise",
    )
    parser.set_defaults(run=run, command=[])


def run(args: argparse.Namespace) -> int:
    """Run the models of the files on this machine and return the exit status."""
    objects = load(args.filename, args.namespace)
    from yaie.cli.local.session import Options, main
    from yaie_local.kubelet import gpus

    if args.models:
        has_gpu = bool(gpus.detect(os.environ))
        objects += named_models(args.models, args.namespace, has_gpu=has_gpu)

    options = Options(
        state=state_folder(args),
        namespace=args.namespace,
        port=args.port,
        objects=tuple(objects),
        timeout_s=args.timeout,
        command=tuple(args.command),
        front=front_of(args),
    )
    return main(options, log_level=args.log_level, log_format=args.log_format)
