"""Builds the cluster's binaries from `kube/` once per machine and says where they are.

The folder in the user's cache is named after the sources' hash, so an unchanged project never
builds twice. `python -m cluster.binaries` builds them ahead of the tests.
"""

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from cluster.missing import MissingError

SOURCES = Path(__file__).parent / "kube"
NAMES = (
    "etcd",
    "helm",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
    "kubectl",
    "kubelet",
)
COREDNS = "coredns"


def folder() -> Path:
    """The folder with every binary, built if need be. Raises MissingError without Go."""
    ready = location()
    if not ready.exists():
        with _locked(ready.with_suffix(".lock")):
            if not ready.exists():
                _build(ready)
    return ready


def location() -> Path:
    """Where the binaries of these sources are, or will be."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "yaie" / "kube" / _hash_of_sources()


def _hash_of_sources() -> str:
    digest = hashlib.sha256()
    for path in ("go.mod", "go.sum", "main.go", "coredns/main.go"):
        digest.update((SOURCES / path).read_bytes())
    return digest.hexdigest()[:16]


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(ready: Path) -> None:
    go = shutil.which("go")
    if go is None:
        raise MissingError("Go is not installed: it builds the Kubernetes that this test runs on")
    with tempfile.TemporaryDirectory(dir=ready.parent) as scratch:
        built = Path(scratch) / "bin"
        built.mkdir()
        _compile(go, ".", built / "kube", _version_flags())
        _compile(go, "./coredns", built / COREDNS, "")
        for name in NAMES:
            (built / name).symlink_to("kube")
        built.rename(ready)


def _compile(go: str, package: str, output: Path, flags: str) -> None:
    build = [go, "build", "-trimpath", f"-ldflags=-s -w {flags}", "-o", output, package]
    subprocess.run(
        ["nice", "-n", "5", *build],
        cwd=SOURCES,
        env={**os.environ, "CGO_ENABLED": "0"},
        check=True,
    )


def _version_flags() -> str:
    """Linker flags that tell the binaries which Kubernetes they are; clients decide by it."""
    found = re.search(r"k8s.io/kubernetes v(\d+)\.(\d+)\.\d+", (SOURCES / "go.mod").read_text())
    assert found is not None
    full = found.group().split()[1]
    values = {"gitVersion": full, "gitMajor": found.group(1), "gitMinor": found.group(2)}
    package = "k8s.io/component-base/version"
    return " ".join(f"-X {package}.{name}={value}" for name, value in values.items())


if __name__ == "__main__":
    try:
        print(folder())  # noqa: T201 - the answer of this command
    except MissingError as missing:
        sys.exit(str(missing))
