"""A hub on the loopback, as far as a download of a model needs one.

Answers what the real one answers for: the commit of a revision, the list of files, HEAD and GET of
a file with its hash, ranges, unknown and gated repositories, and a bad token. It can break off the
body of a file once. Every request is noted.
"""

import contextlib
import hashlib
import json
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
from urllib.parse import unquote, urlsplit

TOKEN = "hf_right"
API = re.compile(r"/api/models/(?P<repo>[^/]+/[^/]+)/(?P<what>revision|tree)/(?P<rev>[^/]+)")
FILE = re.compile(r"/(?P<repo>[^/]+/[^/]+)/resolve/(?P<rev>[^/]+)/(?P<name>.+)")
NO_REPOSITORY = (401, "RepoNotFound", "Invalid username or password.")
NO_REVISION = (404, "RevisionNotFound", "Invalid rev id")
NO_FILE = (404, "EntryNotFound", "Entry not found")
GATED = (401, "GatedRepo", "Access to this model is restricted. You must be authenticated.")
BAD_TOKEN = (401, "", "Invalid credentials in Authorization header")


@dataclass
class Repository:
    """Commits of one model: each a table of files."""

    commits: dict[str, dict[str, bytes]]
    refs: dict[str, str]
    gated: bool = False


@dataclass
class Hub:
    """What is stored, what goes wrong, and what was asked for."""

    repositories: dict[str, Repository] = field(default_factory=dict)
    break_once: set[str] = field(default_factory=set)
    reset: bool = False
    """A broken body ends in a reset of the connection instead of an early end."""
    broken_status: int | None = None
    pace_s: float = 0.0
    """Seconds that each MiB of a file takes."""
    port: int = 0
    asked: list[tuple[str, str, str | None]] = field(default_factory=list)
    """Method, path and Range header of each request."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def push(self, name: str, files: dict[str, bytes], *, ref: str = "main") -> str:
        """Add a commit that `ref` names from now on. Returns its id."""
        content = json.dumps({key: hashlib.sha1(value).hexdigest() for key, value in files.items()})
        commit = hashlib.sha1(f"{name}{content}".encode()).hexdigest()
        repository = self.repositories.setdefault(name, Repository({}, {}))
        repository.commits[commit] = files
        repository.refs[ref] = commit
        return commit

    def fetched(self) -> set[str]:
        """Names of the files whose bytes were asked for."""
        found = (FILE.fullmatch(path) for method, path, _ in self.asked if method == "GET")
        return {match["name"] for match in found if match}

    def ranges(self, name: str) -> list[str | None]:
        """The Range header of each GET of a file, in order."""
        return [
            asked for method, path, asked in self.asked if method == "GET" and path.endswith(name)
        ]


@contextmanager
def serving(hub: Hub) -> Iterator[Hub]:
    """Run the hub on a free port of the loopback."""
    handler = type("BoundHandler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    hub.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: ClassVar[Hub]

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def log_message(self, *args: Any) -> None:
        """Tests read `asked`; nothing goes to the terminal."""

    def _answer(self) -> None:
        path = urlsplit(self.path).path
        self.hub.asked.append((self.command, unquote(path), self.headers.get("Range")))
        match = API.fullmatch(path) or FILE.fullmatch(path)
        repository = self.hub.repositories.get(match["repo"]) if match else None
        if self.hub.broken_status is not None:
            self._refuse(self.hub.broken_status, "", "")
        elif self.headers.get("Authorization") not in {None, f"Bearer {TOKEN}"}:
            self._refuse(*BAD_TOKEN)
        elif match is None or repository is None:
            self._refuse(*NO_REPOSITORY)
        else:
            self._known(repository, match)

    def _known(self, repository: Repository, match: re.Match[str]) -> None:
        revision = unquote(match["rev"])  # a slash in it arrives quoted
        commit = repository.refs.get(revision, revision)
        if commit not in repository.commits:
            self._refuse(*NO_REVISION)
        elif match.re is FILE:
            self._file(repository, commit, unquote(match["name"]))
        elif match["what"] == "tree":
            self._json([_entry(*file) for file in repository.commits[commit].items()])
        else:
            siblings = [{"rfilename": name} for name in repository.commits[commit]]
            self._json({"id": match["repo"], "sha": commit, "siblings": siblings})

    def _file(self, repository: Repository, commit: str, name: str) -> None:
        if repository.gated and "Authorization" not in self.headers:
            return self._refuse(*GATED)
        content = repository.commits[commit].get(name)
        if content is None:
            return self._refuse(*NO_FILE)
        headers = {
            "ETag": f'"{hashlib.sha256(content).hexdigest()}"',
            "X-Repo-Commit": commit,
            "Accept-Ranges": "bytes",
        }
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or "")
        if asked is None:
            return self._send(200, headers, content, name)
        start = int(asked[1])
        headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        return self._send(206, headers, content[start:], name)

    def _json(self, value: Any) -> None:
        self._send(200, {"Content-Type": "application/json"}, json.dumps(value).encode())

    def _refuse(self, status: int, code: str, message: str) -> None:
        headers = {"X-Error-Code": code, "X-Error-Message": message}
        body = json.dumps({"error": message}).encode()
        self._send(status, {key: value for key, value in headers.items() if value}, body)

    def _send(self, status: int, headers: dict[str, str], body: bytes, name: str = "") -> None:
        self.send_response(status)
        for key, value in (headers | {"Content-Length": str(len(body))}).items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        if name not in self.hub.break_once:
            self._write(body, paced=bool(name))
            return
        self.hub.break_once.discard(name)
        self.close_connection = True
        self.wfile.write(body[: len(body) // 2])
        if self.hub.reset:
            self._reset()

    def _write(self, body: bytes, *, paced: bool) -> None:
        if not (paced and self.hub.pace_s):
            self.wfile.write(body)
            return
        with contextlib.suppress(ConnectionError):  # the client was killed
            for start in range(0, len(body), 2**20):
                self.wfile.write(body[start : start + 2**20])
                time.sleep(self.hub.pace_s)

    def _reset(self) -> None:
        """Close at once: the server's own way says an orderly end first."""
        no_wait = struct.pack("ii", 1, 0)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, no_wait)
        os.close(self.connection.detach())


def _entry(name: str, content: bytes) -> dict[str, Any]:
    return {
        "type": "file",
        "path": name,
        "size": len(content),
        "oid": hashlib.sha1(content).hexdigest(),
    }
