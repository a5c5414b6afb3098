"""A download into a volume, for others that mount it: where the files lie, what has been stored,
and a port on which the operator asks how far it is.
"""

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar, Final

import msgspec

from yaie.checkpoint.download.progress import Downloaded
from yaie_api import names
from yaie_api.download.messages import Progress, Result
from yaie_api.errors import InvalidRequestError

log = logging.getLogger(__name__)

CACHE: Final = "hub"
"""Folder of the hub's cache in a volume."""


def use(root: Path) -> None:
    """Keep what this process downloads below `root`. Call it before the hub's library is imported,
    which reads its settings once.
    """
    os.environ["HF_HUB_CACHE"] = str(root.absolute() / CACHE)


def result(root: Path, folder: Path) -> Result:
    """What has been stored in a model's folder below `root`."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return Result(
        folder=str(folder.absolute().relative_to(root.absolute())),
        revision=folder.name,
        bytes=sum(path.stat().st_size for path in files),
    )


class Latest:
    """The last state that a download has told. It is written by one thread and read by others."""

    def __init__(self) -> None:
        self.progress = Progress(0)

    def __call__(self, state: Downloaded) -> None:
        left_s = state.left_s
        self.progress = Progress(
            bytes=state.done,
            total_bytes=state.total or None,
            bytes_per_second=max(round(state.bytes_per_s), 0),
            eta_seconds=None if left_s is None else round(left_s),
        )


@contextmanager
def told_on(host: str, port: int | None, latest: Latest) -> Iterator[None]:
    """Answer `GET /progress` on a port of `host` while the block runs; no port: do not.

    Raises:
        InvalidRequestError: the address cannot be listened on.

    """
    if port is None:
        yield
        return
    handler = type("BoundHandler", (_Handler,), {"latest": latest})
    try:
        server = ThreadingHTTPServer((host, port), handler)
    except OSError as error:
        raise InvalidRequestError(
            f"Cannot listen on port {port} of {host}: {error.strerror}. Choose another --port."
        ) from error
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="progress", daemon=True).start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    latest: ClassVar[Latest]
    timeout = 5

    def do_GET(self) -> None:
        found = self.path == names.PATH_PROGRESS
        body = msgspec.json.encode(self.latest.progress) if found else b"{}"
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Nobody reads a line for each look."""
