"""`yaie apply -f FILE…`: create or change objects of a running `yaie up`."""

import argparse
from typing import TYPE_CHECKING

from yaie.cli.local.client import APPLY, LocalClient, add_state_flags, object_path
from yaie.cli.local.files import Loaded, add_files_flag, load
from yaie_api.errors import InvalidRequestError

if TYPE_CHECKING:
    from yaie.cli.main import Subparsers


def add_parser(subparsers: "Subparsers") -> None:
    parser = subparsers.add_parser(
        "apply",
        help="create or change objects of a running `yaie up`",
        description="Create or change the objects of the files. All of them are checked first.",
    )
    add_files_flag(parser, required=True)
    add_state_flags(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    objects = load(args.filename, args.namespace)
    client = LocalClient.of(args)
    for loaded in objects:
        apply(client, loaded, dry_run=True)
    for loaded in objects:
        print(f"{loaded.name} {apply(client, loaded, dry_run=False)}")
    return 0


def apply(client: LocalClient, loaded: Loaded, *, dry_run: bool) -> str:
    """Apply an object; returns "created", "configured" or "unchanged".

    Raises:
        InvalidRequestError: it is refused; the message names its place.

    """
    path = object_path(loaded.object)
    query = {"fieldManager": "yaie", "force": "true"} | ({"dryRun": "All"} if dry_run else {})
    before = _version(client, path)
    try:
        status, after = client.call(
            "PATCH", path, body=loaded.object, content_type=APPLY, query=query
        )
    except InvalidRequestError as error:
        raise InvalidRequestError(f"{loaded.where}: {error.message}") from error
    if status == 201 or before is None:
        return "created"
    return "unchanged" if after["metadata"]["resourceVersion"] == before else "configured"


def _version(client: LocalClient, path: str) -> str | None:
    """The resourceVersion of a stored object; None if it does not exist."""
    from yaie_api.errors import NotFoundError

    try:
        _, found = client.call("GET", path)
    except NotFoundError:
        return None
    return str(found["metadata"]["resourceVersion"])
