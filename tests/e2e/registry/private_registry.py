"""A registry that asks for a name and a password, and serves the images of an OCI layout: as far as
a container runtime needs one to pull.
"""

import base64
import contextlib
import hashlib
import json
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

from cluster.control_plane import LOOPBACK

USER, PASSWORD = "puller", "very-secret-value"
REFERENCE = "org.opencontainers.image.ref.name"


@dataclass
class Registry:
    """Images of a layout under their names, without the host that stands before them there."""

    layout: Path
    port: int = 0
    refused: list[str] = field(default_factory=list)
    """Paths that were asked for without the right credentials."""
    served: list[str] = field(default_factory=list)

    @property
    def host(self) -> str:
        """What image names begin with. The node's containerd, 1.6, speaks plain HTTP to the
        loopback; 2.1 does where its hosts.toml says so.
        """
        return f"{LOOPBACK}:{self.port}"

    def find(self, path: str) -> tuple[Path, str] | None:
        """The file and media type of `/v2/NAME/(manifests|blobs)/REFERENCE`."""
        name, _, rest = path.removeprefix("/v2/").rpartition("/manifests/")
        if name:
            entries = json.loads((self.layout / "index.json").read_text())["manifests"]
            wanted = {entry["digest"]: entry for entry in entries} | {
                entry["annotations"][REFERENCE].partition("/")[2]: entry
                for entry in entries
                if REFERENCE in entry.get("annotations", {})
            }
            entry = wanted.get(rest) or wanted.get(f"{name}:{rest}")
            return entry and (self._blob(entry["digest"]), entry["mediaType"])
        blob = self._blob(path.rpartition("/blobs/")[2])
        return (blob, "application/octet-stream") if blob.is_file() else None

    def _blob(self, digest: str) -> Path:
        return self.layout / "blobs" / "sha256" / Path(_hex(digest)).name


def with_own_id(layout: Path, name: str, folder: Path) -> Path:
    """A layout in `folder` with one image of another, its layers linked, under another id.

    Whoever pulls an image with a Secret makes the kubelet ask for one in every pod with that id.
    """
    blobs = layout / "blobs" / "sha256"
    own = folder / "blobs" / "sha256"
    own.mkdir(parents=True)
    entries = json.loads((layout / "index.json").read_text())["manifests"]
    (entry,) = (one for one in entries if one.get("annotations", {}).get(REFERENCE) == name)
    manifest = json.loads((blobs / _hex(entry["digest"])).read_text())
    for layer in manifest["layers"]:
        (own / _hex(layer["digest"])).symlink_to(blobs / _hex(layer["digest"]))
    config = json.loads((blobs / _hex(manifest["config"]["digest"])).read_text())
    config["config"]["Labels"] = {**config["config"].get("Labels", {}), "private": "true"}
    manifest["config"] |= _stored(own, config)
    copied = entry | _stored(own, manifest)
    (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [copied]}))
    return folder


def _hex(digest: str) -> str:
    return digest.removeprefix("sha256:")


def _stored(folder: Path, content: dict[str, Any]) -> dict[str, Any]:
    """Write JSON as a blob. Returns its digest and size, as descriptors have them."""
    data = json.dumps(content).encode()
    digest = hashlib.sha256(data).hexdigest()
    (folder / digest).write_bytes(data)
    return {"digest": f"sha256:{digest}", "size": len(data)}


class _Handler(BaseHTTPRequestHandler):
    registry: ClassVar[Registry]
    protocol_version = "HTTP/1.1"
    timeout = 30

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        given = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        if self.headers.get("Authorization") != f"Basic {given}":
            self.registry.refused.append(self.path)
            self._send(401, {"WWW-Authenticate": 'Basic realm="images"', "Content-Length": "0"})
            return
        self.registry.served.append(self.path)
        if self.path == "/v2/":
            self._send(200, {"Content-Length": "0"})
        elif (found := self.registry.find(self.path)) is None:
            self._send(404, {"Content-Length": "0"})
        else:
            self._file(*found)

    def _file(self, path: Path, media_type: str) -> None:
        digest, size = f"sha256:{path.name}", path.stat().st_size
        headers = {"Content-Type": media_type, "Docker-Content-Digest": digest}
        self._send(200, headers | {"Content-Length": str(size)})
        if self.command == "GET":
            with path.open("rb") as file, contextlib.suppress(ConnectionError):
                shutil.copyfileobj(file, self.wfile, 2**20)

    def _send(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        """Tests read `refused` and `served`."""


@contextlib.contextmanager
def serving(registry: Registry) -> Iterator[Registry]:
    """Serve the layout on a free port of the loopback."""
    server = ThreadingHTTPServer((LOOPBACK, 0), type("Bound", (_Handler,), {"registry": registry}))
    server.daemon_threads = True
    registry.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
