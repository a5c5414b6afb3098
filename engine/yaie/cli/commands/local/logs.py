"""`yaie logs NAME`: the output of a model's engines or of the router, of the running `yaie up` or,
if none runs, of the last one.
"""

import argparse
import os
import queue
import sys
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from yaie.cli.local.client import LocalClient, NotRunningError, add_state_flags, state_folder
from yaie.cli.local.log_lines import by_time, merged, rendered
from yaie.cli.values import count
from yaie_api import names
from yaie_api.errors import InvalidRequestError, NotFoundError

if TYPE_CHECKING:
    from yaie.cli.main import Subparsers
    from yaie_local.state import StateFolder

Item = bytes | Exception | None
_MOST_WAITING: Final = 1024
_TOGETHER_S: Final = 0.1


def add_parser(subparsers: "Subparsers") -> None:
    parser = subparsers.add_parser(
        "logs",
        help="print the logs of a model's pods",
        description="Print the logs of a model's engines, by their time; on a terminal for people "
        "to read, otherwise as they are. With several pods each line begins with its pod. When no "
        "`yaie up` runs, these are the logs that the last one left.",
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="a model, or one of its pods")
    parser.add_argument("--router", action="store_true", help="the router's logs instead")
    parser.add_argument("-f", "--follow", action="store_true", help="go on with what is added")
    parser.add_argument("--json", action="store_true", help="as they are, on a terminal too")
    parser.add_argument("--tail", type=count, metavar="N", help="only the last N lines of each pod")
    add_state_flags(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the logs of a model's pods or of the router and return the exit status.

    Raises:
        InvalidRequestError: both a model and --router are given, or neither.

    """
    if bool(args.name) == args.router:
        raise InvalidRequestError("say whose logs: the name of a model, or --router")
    try:
        streams = _running(LocalClient.of(args), args)
    except NotRunningError as error:
        streams = _left(state_folder(args), args, error)
    lines = together(streams) if args.follow else merged(streams)
    if args.json or not sys.stdout.isatty():
        for line in lines:
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
        return 0
    for line in lines:
        print(rendered(line, colours="NO_COLOR" not in os.environ), flush=True)
    return 0


def together(streams: Sequence[Iterator[bytes]]) -> Iterator[bytes]:
    """Yield the lines of all streams as they arrive, each stream read by its own thread; those that
    arrive together by their time.

    An exception in a thread is raised here.
    """
    found: queue.Queue[Item] = queue.Queue(_MOST_WAITING)
    for stream in streams:
        threading.Thread(target=_read, args=(stream, found), daemon=True).start()
    n_open = len(streams)
    while n_open:
        arrived = _arrived(found)
        n_open -= arrived.count(None)
        yield from by_time([line for line in arrived if isinstance(line, bytes)])
        for error in arrived:
            if isinstance(error, Exception):
                raise error


def _arrived(found: "queue.Queue[Item]") -> "list[Item]":
    """What comes within a moment, a limited number of lines; waits for the first of it."""
    items = [found.get()]
    time.sleep(_TOGETHER_S)
    while len(items) < _MOST_WAITING and not found.empty():
        items.append(found.get())
    return items


def _read(stream: Iterator[bytes], found: "queue.Queue[Item]") -> None:
    try:
        for line in stream:
            found.put(line)
    except Exception as error:  # noqa: BLE001 - raised again where the lines are printed
        found.put(error)
    else:
        found.put(None)


def _running(client: LocalClient, args: argparse.Namespace) -> list[Iterator[bytes]]:
    """The logs of the running pods, each a stream.

    Raises:
        NotFoundError: there are no pods.
        NotRunningError: no `yaie up` runs.

    """
    pods = _pods(client, args)
    query = {"follow": "true"} if args.follow else {}
    if args.tail is not None:
        query["tailLines"] = str(args.tail)
    return [_lines(client, args.namespace, p, query, prefix(p, pods)) for p in pods]


def _left(
    folder: "StateFolder", args: argparse.Namespace, nothing_runs: NotRunningError
) -> list[Iterator[bytes]]:
    """The logs that the last `yaie up` left, each a stream.

    Raises:
        NotRunningError: it left none of this model.

    """
    from yaie_local import logfile

    wanted = args.name or names.ROUTER
    left = [*folder.logs_of_last_run(), *folder.of_run.logs_of_last_run()]
    logs = {path.stem: path for path in left if is_pod_of(path.stem, wanted)}
    if not logs:
        raise nothing_runs
    print(f"yaie: nothing runs in {folder.path}; these are the last run's logs", file=sys.stderr)
    return [_begun(prefix(p, logs), logfile.tail(path, args.tail)) for p, path in logs.items()]


def _begun(start: bytes, text: bytes) -> Iterator[bytes]:
    return (start + line for line in text.splitlines(keepends=True))


def is_pod_of(pod: str, name: str) -> bool:
    """Whether `name` is this pod, or the Deployment that `NAME-HASH-SUFFIX` belongs to."""
    return name in (pod, pod.rsplit("-", 2)[0])


def prefix(pod: str, pods: Collection[str]) -> bytes:
    """What the lines of a pod begin with: nothing if there is only one."""
    return f"[{pod}] ".encode() if len(pods) > 1 else b""


def _pods(client: LocalClient, args: argparse.Namespace) -> list[str]:
    """Names of the pods.

    Raises:
        NotFoundError: there are no pods.

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
    client: LocalClient, namespace: str, pod: str, query: dict[str, str], start: bytes
) -> Iterator[bytes]:
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}/log"
    return (start + line for line in client.lines(path, query))
