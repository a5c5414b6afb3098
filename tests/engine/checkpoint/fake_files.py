"""Files over HTTP on this machine: what the doubles of a hub and of object storage share.

Ranges, a body that breaks off once, a pace, and a note of every request.
"""

import contextlib
import os
import re
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

BLOCK = 2**20


@dataclass(kw_only=True)
class FileStore:
    """What goes wrong, and what was asked for."""

    break_once: set[str] = field(default_factory=set)
    reset: bool = False
    """A broken body ends in a reset of the connection instead of an early end."""
    pace_s: float = 0.0
    """Seconds that each MiB of a file takes."""
    address: str = "127.0.0.1"
    """Where to listen; pods of the test node reach its own address, not the loopback."""
    port: int = 0
    asked: list[tuple[str, str, str | None]] = field(default_factory=list)
    """Method, path and Range header of each request."""

    @property
    def url(self) -> str:
        return f"http://{self.address}:{self.port}"

    def ranges(self, name: str) -> list[str | None]:
        """The Range header of each GET of a file, in order."""
        return [
            asked for method, path, asked in self.asked if method == "GET" and path.endswith(name)
        ]


class FileHandler(BaseHTTPRequestHandler):
    """Answers with files; a subclass decides by `answer` with which."""

    protocol_version = "HTTP/1.1"
    store: ClassVar[Any]

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def answer(self) -> None:
        """Answer a HEAD or GET, by `send` or `send_file`."""
        raise NotImplementedError

    def log_message(self, *args: Any) -> None:
        """Tests read `asked`; nothing goes to the terminal."""

    def note(self, path: str) -> None:
        self.store.asked.append((self.command, path, self.headers.get("Range")))

    def send_file(self, headers: dict[str, str], content: bytes, name: str) -> None:
        """Send a file, or the rest of it from where the client asks."""
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or "")
        if asked is None:
            self.send(200, headers, content, name)
            return
        start = int(asked[1])
        span = {"Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"}
        self.send(206, headers | span, content[start:], name)

    def send(self, status: int, headers: dict[str, str], body: bytes, name: str = "") -> None:
        """Send an answer. `name`: of the file that the body is of."""
        self.send_response(status)
        for key, value in (headers | {"Content-Length": str(len(body))}).items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        if name not in self.store.break_once:
            self._write(body, pace_s=self.store.pace_s if name else 0.0)
            return
        self.store.break_once.discard(name)
        self.close_connection = True
        self.wfile.write(body[: len(body) // 2])
        if self.store.reset:
            self._reset()

    def _write(self, body: bytes, *, pace_s: float) -> None:
        with contextlib.suppress(ConnectionError):  # the client was killed
            for start in range(0, len(body), BLOCK):
                self.wfile.write(body[start : start + BLOCK])
                time.sleep(pace_s)

    def _reset(self) -> None:
        """Close at once: the server's own way says an orderly end first."""
        no_wait = struct.pack("ii", 1, 0)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, no_wait)
        os.close(self.connection.detach())


@contextmanager
def listening(handler: type[FileHandler], store: FileStore) -> Iterator[None]:
    """Serve the files on a free port of the store's address, which `store.port` names."""
    bound = type("BoundHandler", (handler,), {"store": store})
    server = ThreadingHTTPServer((store.address, 0), bound)
    server.daemon_threads = True
    store.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
