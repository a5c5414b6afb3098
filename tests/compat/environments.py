"""Environments of the clients, each of its own, kept in the cache by what they are made of."""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "yaie" / "compat"
INSTALL_TIMEOUT_S = 1200
VLLM = "vllm==0.33.0"
"""Without its dependencies: only its load generator is used, which needs no compiled part."""


class MissingToolError(Exception):
    """A program that the machine lacks; the message says how to get it."""


def python(name: str) -> Path:
    """The interpreter of environment `name`, made from requirements/NAME.txt when it is new."""
    requirements = HERE / "requirements" / f"{name}.txt"
    folder = _folder(name, requirements.read_bytes())
    return _made(folder, lambda: _make_python(folder, requirements)) / "bin" / "python"


def vllm() -> Path:
    """The interpreter of an environment with vLLM's load generator."""
    requirements = HERE / "requirements" / "vllm-bench.txt"
    folder = _folder("vllm-bench", requirements.read_bytes() + VLLM.encode())

    def make() -> None:
        _make_python(folder, requirements)
        _run(_uv(), "pip", "install", "-q", "--python", folder / "bin/python", "--no-deps", VLLM)

    return _made(folder, make) / "bin" / "python"


def node() -> Path:
    """A folder with the JavaScript clients installed beside their programs."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        raise MissingToolError("node 20 or newer with npm is needed for the JavaScript clients")
    package = HERE / "package.json"
    folder = _folder("node", package.read_bytes())

    def make() -> None:
        folder.mkdir(parents=True)
        shutil.copy(package, folder)
        _run("npm", "install", "--no-audit", "--no-fund", "--no-package-lock", cwd=folder)

    _made(folder, make)
    for program in (HERE / "clients").glob("*.mjs"):
        shutil.copy(program, folder)
    return folder


def _folder(name: str, content: bytes) -> Path:
    return CACHE / f"{name}-{hashlib.sha256(content).hexdigest()[:12]}"


def _made(folder: Path, make: Callable[[], None]) -> Path:
    """`folder`, made now unless a complete one is there."""
    stamp = folder / ".complete"
    if not stamp.exists():
        shutil.rmtree(folder, ignore_errors=True)
        print(f"installing {folder.name} …", flush=True)
        make()
        stamp.touch()
    return folder


def _make_python(folder: Path, requirements: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    _run(_uv(), "venv", "-q", "--python", "3.11", folder)
    _run(
        _uv(), "pip", "install", "-q", "--python", folder / "bin/python",
        "--require-hashes", "-r", requirements,
    )  # fmt: skip


def _uv() -> str:
    return str(Path(sys.executable).with_name("uv"))


def _run(*command: object, cwd: Path | None = None) -> None:
    subprocess.run([str(part) for part in command], check=True, cwd=cwd, timeout=INSTALL_TIMEOUT_S)
