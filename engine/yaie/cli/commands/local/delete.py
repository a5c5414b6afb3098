"""`yaie delete NAME…` or `-f FILE…`: remove models of a running `yaie up` with all they own."""

import argparse
from typing import TYPE_CHECKING

from yaie.cli.local.client import LocalClient, add_state_flags, model_path, object_path
from yaie.cli.local.files import add_files_flag, load
from yaie_api.errors import InvalidRequestError, NotFoundError

if TYPE_CHECKING:
    from yaie.cli.main import Subparsers


def add_parser(subparsers: "Subparsers") -> None:
    parser = subparsers.add_parser(
        "delete",
        help="delete objects of a running `yaie up`",
        description="Delete models, or the objects of files, and everything that they own.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="names of models")
    add_files_flag(parser, required=False)
    parser.add_argument(
        "--ignore-not-found", action="store_true", help="what is already gone is no error"
    )
    add_state_flags(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Delete models by name, or the objects of files, and return the exit status.

    Raises:
        InvalidRequestError: names and files are given together, or neither.
        NotFoundError: an object does not exist, and --ignore-not-found is not set.

    """
    if bool(args.names) == bool(args.filename):
        raise InvalidRequestError("say what to delete: names of models, or files with -f")
    targets = {f"inferencemodel/{name}": model_path(args.namespace, name) for name in args.names}
    targets |= {o.name: object_path(o.object) for o in load(args.filename, args.namespace)}
    client = LocalClient.of(args)
    missing = [name for name, path in targets.items() if not _delete(client, name, path)]
    if missing and not args.ignore_not_found:
        raise NotFoundError(f"not found: {', '.join(missing)}")
    return 0


def _delete(client: LocalClient, name: str, path: str) -> bool:
    """Whether it was there."""
    try:
        client.call("DELETE", path)
    except NotFoundError:
        return False
    print(f"{name} deleted")
    return True
