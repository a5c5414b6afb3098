"""`yaie logs NAME`: what the engines of a model (or the router) printed."""

import argparse
import itertools
import queue
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from yaie.cli.local.client import LocalClient, add_state_flags
from yaie.cli.values import count
from yaie_api import names
from yaie_api.errors import InvalidRequestError, NotFoundError

if TYPE_CHECKING:
    from yaie.cli.main import Subparsers

_MOST_WAITING: Final = 1024


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
    parser.add_argument("--tail", type=count, metavar="N", help="only the last N lines of each pod")
    add_state_flags(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the logs of a model's pods or of the router and return the exit status.

    Raises:
        InvalidRequestError: a model and --router are given together, or neither.

    """
    if bool(args.name) == args.router:
        raise InvalidRequestError("say whose logs: the name of a model, or --router")
    client = LocalClient.of(args)
    pods = _pods(client, args)
    query = {"follow": "true"} if args.follow else {}
    if args.tail is not None:
        query["tailLines"] = str(args.tail)
    streams = [
        _lines(client, args.namespace, pod, query, f"[{pod}] " if len(pods) > 1 else "")
        for pod in pods
    ]
    for line in together(streams) if args.follow else itertools.chain.from_iterable(streams):
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()
    return 0


def together(streams: Sequence[Iterator[bytes]]) -> Iterator[bytes]:
    """The lines of all streams as they come, each read by a thread of its own. What a thread
    raises is raised here.
    """
    found: queue.Queue[bytes | Exception | None] = queue.Queue(_MOST_WAITING)
    for stream in streams:
        threading.Thread(target=_read, args=(stream, found), daemon=True).start()
    n_open = len(streams)
    while n_open:
        line = found.get()
        if isinstance(line, Exception):
            raise line
        if line is None:
            n_open -= 1
        else:
            yield line


def _read(stream: Iterator[bytes], found: "queue.Queue[bytes | Exception | None]") -> None:
    try:
        for line in stream:
            found.put(line)
    except Exception as error:  # noqa: BLE001 - raised again where the lines are printed
        found.put(error)
    else:
        found.put(None)


def _pods(client: LocalClient, args: argparse.Namespace) -> list[str]:
    """Names of the pods.

    Raises:
        NotFoundError: there are none.

    """
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


def _lines(
    client: LocalClient, namespace: str, pod: str, query: dict[str, str], prefix: str
) -> Iterator[bytes]:
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}/log"
    return (prefix.encode() + line for line in client.lines(path, query))
