"""What the clients talk to: `yaie serve` directly, and the same model behind `yaie up`'s router."""

import contextlib
import json
import os
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


@contextlib.contextmanager
def serve(model: str) -> Iterator[str]:
    """One engine with its HTTP server."""
    port = _free_port()
    with _running("serve", SOURCE, "--port", str(port), "--served-model-name", model):
        yield _ready(f"http://127.0.0.1:{port}", model)


@contextlib.contextmanager
def router(model: str) -> Iterator[str]:
    """Operator, router and engine, as on a cluster."""
    port = _free_port()
    with (
        tempfile.TemporaryDirectory(prefix="yaie-compat-") as state,
        _running(
            "up", "-f", str(MANIFEST), "--state-dir", state, "--port", str(port), "--timeout", "120"
        ),
    ):
        yield _ready(f"http://127.0.0.1:{port}", model)


TARGETS = {"serve": serve, "router": router}


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
