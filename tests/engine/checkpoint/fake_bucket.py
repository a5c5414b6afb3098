"""Object storage on the loopback, as far as a download of a model needs it: ListObjectsV2, HEAD and
GET with Range and If-Match. It checks who asks, and can break off the body of a file once.
"""

import contextlib
import hashlib
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

KEY, SECRET = "AKIDRIGHT", "very-secret-value"


@dataclass
class Bucket:
    """One bucket, what goes wrong, and what was asked for."""

    name: str = "models"
    files: dict[str, bytes] = field(default_factory=dict)
    break_once: set[str] = field(default_factory=set)
    pace_s: float = 0.0
    """Seconds that each MiB of a file takes."""
    is_down: bool = False
    port: int = 0
    asked: list[tuple[str, str, str | None]] = field(default_factory=list)
    """Method, key and Range header of each request."""

    @property
    def environ(self) -> dict[str, str]:
        """The environment of somebody who may read it."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "eu-1",
        }

    def ranges(self, name: str) -> list[str | None]:
        """The Range header of each GET of a file, in order."""
        return [r for method, key, r in self.asked if method == "GET" and key.endswith(name)]


@contextmanager
def storing(bucket: Bucket) -> Iterator[Bucket]:
    """Serve the bucket on a free port of the loopback."""
    handler = type("BoundHandler", (_Handler,), {"bucket": bucket})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    bucket.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield bucket
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    bucket: ClassVar[Bucket]

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def log_message(self, *args: Any) -> None:
        """Tests read `asked`; nothing goes to the terminal."""

    def _answer(self) -> None:
        url = urlsplit(self.path)
        name, _, key = unquote(url.path).lstrip("/").partition("/")
        self.bucket.asked.append((self.command, key, self.headers.get("Range")))
        if self.bucket.is_down:
            self._refuse(500, "InternalError")
        elif f"Credential={KEY}/" not in self.headers.get("Authorization", ""):
            self._refuse(403, "InvalidAccessKeyId")
        elif name != self.bucket.name:
            self._refuse(404, "NoSuchBucket")
        elif not key:
            self._list(parse_qs(url.query))
        elif key not in self.bucket.files:
            self._refuse(404, "NoSuchKey")
        else:
            self._file(self.bucket.files[key], key.rpartition("/")[2])

    def _list(self, query: dict[str, list[str]]) -> None:
        prefix = query.get("prefix", [""])[0]
        rows = [
            f"<Contents><Key>{escape(key)}</Key><Size>{len(body)}</Size>"
            f"<ETag>{escape(tag(body))}</ETag>"
            "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            for key, body in sorted(self.bucket.files.items())
            if key.startswith(prefix) and "/" not in key.removeprefix(prefix)
        ]
        space = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
        body = (
            f"<ListBucketResult {space}><Name>{self.bucket.name}</Name><IsTruncated>false"
            f"</IsTruncated><KeyCount>{len(rows)}</KeyCount>{''.join(rows)}</ListBucketResult>"
        )
        self._send(200, {"Content-Type": "application/xml"}, body.encode())

    def _file(self, content: bytes, name: str) -> None:
        if self.headers.get("If-Match") not in {None, tag(content)}:
            self._refuse(412, "PreconditionFailed")
            return
        headers = {"ETag": tag(content), "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or "")
        if asked is None:
            self._send(200, headers, content, name)
            return
        start = int(asked[1])
        headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        self._send(206, headers, content[start:], name)

    def _refuse(self, status: int, code: str) -> None:
        body = f"<Error><Code>{code}</Code><Message>no</Message></Error>"
        self._send(status, {"Content-Type": "application/xml"}, body.encode())

    def _send(self, status: int, headers: dict[str, str], body: bytes, name: str = "") -> None:
        self.send_response(status)
        for key, value in (headers | {"Content-Length": str(len(body))}).items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        if name in self.bucket.break_once:
            self.bucket.break_once.discard(name)
            self.close_connection = True
            body = body[: len(body) // 2]
        with contextlib.suppress(ConnectionError):  # the client was killed
            for start in range(0, len(body), 2**20):
                self.wfile.write(body[start : start + 2**20])
                if name and self.bucket.pace_s:
                    time.sleep(self.bucket.pace_s)


def tag(content: bytes) -> str:
    """The ETag of a file."""
    return f'"{hashlib.md5(content).hexdigest()}"'
