"""`yaie logs NAME`: what the engines of a model (or the router) printed."""

import argparse
import sys
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from yaie.cli.local_client import LocalClient, add_state_flags
from yaie_api import names
from yaie_api.errors import InvalidRequestError, NotFoundError

if TYPE_CHECKING:
    from yaie.cli.main import Subparsers

_LOCK: Final = threading.Lock()


def add_parser(subparsers: "Subparsers") -> None:
    parser = subparsers.add_parser(
        "logs",
        help="print the logs of a model's pods",
        description="Print the logs of a model's engines. With several pods each line begins with "
        "its pod.",
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="a model, or one of its pods")
    parser.add_argument("--router", action="store_true", help="the router's logs instead")
    parser.add_argument("-f", "--follow", action="store_true", help="go on with what is added")
    parser.add_argument("--tail", type=int, metavar="N", help="only the last N lines of each pod")
    add_state_flags(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if bool(args.name) == args.router:
        raise InvalidRequestError("say whose logs: the name of a model, or --router")
    client = LocalClient.of(args)
    pods = _pods(client, args)
    query = {"follow": "true"} if args.follow else {}
    if args.tail is not None:
        query["tailLines"] = str(max(0, args.tail))
    readers = [
        threading.Thread(
            target=_copy,
            args=(client, args.namespace, pod, query, f"[{pod}] " if len(pods) > 1 else ""),
            daemon=True,
        )
        for pod in pods
    ]
    _run_all(readers, together=args.follow)
    return 0


def _run_all(readers: Iterable[threading.Thread], *, together: bool) -> None:
    """One pod after the other, or all at once when none of them ends."""
    started = []
    for reader in readers:
        reader.start()
        started.append(reader)
        if not together:
            reader.join()
    for reader in started:
        reader.join()


def _pods(client: LocalClient, args: argparse.Namespace) -> list[str]:
    """Names of the pods. Raises NotFoundError when there are none."""
    label, value = names.LABEL_MODEL, args.name
    if args.router:
        label, value = names.LABEL_COMPONENT, names.COMPONENT_ROUTER
    found = client.pods(args.namespace, f"{label}={value}")
    if not found and args.name:
        everything = client.pods(args.namespace, "")
        found = [pod for pod in everything if pod["metadata"]["name"] == args.name]
    if not found:
        known = ", ".join(m["metadata"]["name"] for m in client.models(args.namespace)) or "none"
        what = "router" if args.router else f"pod of a model {args.name}"
        raise NotFoundError(f"there is no {what} (models here: {known})")
    return [pod["metadata"]["name"] for pod in found]


def _copy(
    client: LocalClient, namespace: str, pod: str, query: dict[str, str], prefix: str
) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}/log"
    for line in client.lines(path, query):
        with _LOCK:
            sys.stdout.buffer.write(prefix.encode() + line)
            sys.stdout.buffer.flush()
