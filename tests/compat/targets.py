"""What the clients talk to: `yaie serve` directly, and the same model behind `yaie up`'s router."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
READY_TIMEOUT_S = 120
SOURCE = "builtin://yaie-demo"
MANIFEST = ROOT / "manifests/samples/demo.yaml"
DEMO = ROOT / "engine/yaie/checkpoint/builtin/yaie-demo"
LONG_POSITIONS = 32_768


@contextlib.contextmanager
def serve(model: str, *, long_context: bool = False) -> Iterator[str]:
    """One engine with its HTTP server."""
    port = _free_port()
    with (
        _source(long_context=long_context) as source,
        _running("serve", source, "--port", str(port), "--served-model-name", model),
    ):
        yield _ready(f"http://127.0.0.1:{port}", model)


@contextlib.contextmanager
def router(model: str, *, long_context: bool = False) -> Iterator[str]:
    """Operator, router and engine, as on a cluster."""
    port = _free_port()
    with (
        _source(long_context=long_context) as source,
        tempfile.TemporaryDirectory(prefix="yaie-compat-") as state,
        _running(
            "up", "-f", str(_manifest(source, Path(state))), "--state-dir", f"{state}/state",
            "--port", str(port), "--timeout", "120",
        ),
    ):  # fmt: skip
        yield _ready(f"http://127.0.0.1:{port}", model)


TARGETS = {"serve": serve, "router": router}


@contextlib.contextmanager
def _source(*, long_context: bool) -> Iterator[str]:
    """The demo model; for a long context a copy of it that says to have more positions. It was not
    trained on those, so its words mean nothing there; nobody reads them.
    """
    if not long_context:
        yield SOURCE
        return
    with tempfile.TemporaryDirectory(prefix="yaie-long-") as place:
        folder = Path(place, "model")
        shutil.copytree(DEMO, folder)
        config = json.loads((folder / "config.json").read_text())
        config["max_position_embeddings"] = LONG_POSITIONS
        (folder / "config.json").write_text(json.dumps(config))
        yield f"file://{folder}"


def _manifest(source: str, folder: Path) -> Path:
    """The sample manifest, with another source if it is not the sample's."""
    changed = folder / "model.yaml"
    changed.write_text(MANIFEST.read_text().replace(SOURCE, source))
    return changed


@contextlib.contextmanager
def _running(*arguments: str) -> Iterator[None]:
    """`yaie ARGUMENTS` until the block ends. Its log is shown when it ends early."""
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "yaie", *arguments], stdout=log, stderr=log,
            env=os.environ | {"PYTHONUNBUFFERED": "1"}, cwd=ROOT,
        )  # fmt: skip
        try:
            yield
        finally:
            early = process.poll()
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
            if early is not None:
                log.seek(0)
                print(log.read()[-4000:], file=sys.stderr)


def _ready(url: str, model: str) -> str:
    deadline = time.monotonic() + READY_TIMEOUT_S
    body = {"model": model, "prompt": "a", "max_tokens": 1}
    request = urllib.request.Request(
        f"{url}/v1/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    while time.monotonic() < deadline:
        with contextlib.suppress(urllib.error.URLError, ConnectionError, TimeoutError):
            urllib.request.urlopen(request, timeout=10).close()
            return url
        time.sleep(0.5)
    raise TimeoutError(f"{url} was not ready within {READY_TIMEOUT_S} s")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
