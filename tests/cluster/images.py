"""Builds the container images that the test node runs, into an OCI layout that containerd imports.

`pause`          holds a pod's namespaces: busybox, asleep
`control-plane`  the project's own images, from images/*/Dockerfile
`engine`         (torch and CUDA: about three minutes from nothing, seconds afterwards)

No registry is involved: the Dockerfiles' base comes from debootstrap, and buildah keeps the layers.
`python -m cluster.images` builds all of them, outside the sandbox, which has no network.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from cluster.missing import MissingError
from cluster.node import SANDBOX_IMAGE

ROOT = Path(__file__).parents[2]
RELEASE = "bookworm"
BASE = f"localhost/yaie-test/debian:{RELEASE}"
PROJECT = ("control-plane", "engine")
PREFIX = "localhost/yaie-test"
LOCAL_AUTHORITIES = Path("/usr/local/share/ca-certificates")
MOST_BLOBS = 100
PROGRAMS = ("buildah", "debootstrap", "busybox")


def layout() -> Path:
    """The OCI layout with all images. Raises MissingError when it is not built."""
    if not _done().exists():
        raise MissingError("the images are not built: run tests/e2e/run.sh")
    return location()


def location() -> Path:
    """Folder of the layout, in the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "yaie" / "images"


def _done() -> Path:
    """Names the images that the layout holds; written last."""
    return location().with_suffix(".done")


def build_all() -> None:
    """Build what changed and export it. Raises MissingError naming an absent program."""
    _check()
    if not _id_of(SANDBOX_IMAGE):
        _build_pause()
    if not _id_of(BASE):
        _build_base()
    for name in PROJECT:
        _build_project(name)
    _export([SANDBOX_IMAGE, *map(image, PROJECT)])


def image(name: str) -> str:
    """Full name of one of the project's images on the test node."""
    return f"{PREFIX}/{name}:{version()}"


def version() -> str:
    """The project's version, which is its images' tag."""
    from yaie_api import __version__

    return __version__


def _check() -> None:
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if os.geteuid() != 0:
        raise MissingError("building images for the test node needs root")
    if missing:
        raise MissingError(f"{', '.join(missing)} not installed: tests/cluster/install_node.sh")


def _buildah(*arguments: str | Path) -> str:
    command = ["buildah", *map(str, arguments)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def _id_of(image: str) -> str:
    """The image's id, empty when it does not exist."""
    return _buildah("images", "--quiet", "--no-trunc", "--filter", f"reference={image}")


def _build_pause() -> None:
    container = _buildah("from", "scratch")
    try:
        _buildah("copy", container, _found("busybox"), "/busybox")
        _buildah("config", "--entrypoint", '["/busybox", "sleep", "2147483647"]', container)
        _buildah("commit", "--quiet", container, SANDBOX_IMAGE)
    finally:
        _buildah("rm", container)


def _build_base() -> None:
    """What the Dockerfiles call debian:12-slim, made of Debian's packages."""
    with tempfile.TemporaryDirectory(prefix="yaie-base-") as folder:
        debootstrap = ["debootstrap", "--variant=minbase", RELEASE, folder]
        subprocess.run(debootstrap, check=True, stdout=sys.stderr)
        container = _buildah("from", "scratch")
        try:
            _buildah("copy", container, folder, "/")
            if LOCAL_AUTHORITIES.is_dir():  # trust whom this machine trusts: downloads need it
                _buildah("copy", container, LOCAL_AUTHORITIES, LOCAL_AUTHORITIES)
            _buildah("commit", "--quiet", container, BASE)
        finally:
            _buildah("rm", container)


def _build_project(name: str) -> None:
    environment = {
        **os.environ,
        "YAIE_BUILDER": "buildah",
        "YAIE_BASE": BASE,
        "YAIE_BUILD_FLAGS": "--isolation chroot --network host --pull-never",
        "YAIE_IMAGE_PREFIX": PREFIX,
    }
    before = _id_of(image(name))
    build = [ROOT / "images" / "build.sh", name]
    subprocess.run(build, env=environment, check=True, stdout=sys.stderr)
    if before and before != _id_of(image(name)):
        _buildah("rmi", before)  # nothing names it any more; the new one keeps the shared layers


def _export(images: list[str]) -> None:
    """Bring the layout up to date. Layers that it has are not written again."""
    wanted = "\n".join(f"{name} {_id_of(name)}" for name in images)
    if _done().exists() and _done().read_text() == wanted:
        return
    _done().unlink(missing_ok=True)
    blobs = location() / "blobs" / "sha256"
    if blobs.is_dir() and sum(1 for _ in blobs.iterdir()) > MOST_BLOBS:
        shutil.rmtree(location())  # layers of old builds have gathered
    for name in images:
        fast = ["--compression-format", "zstd", "--compression-level", "1"]
        _buildah("push", "--quiet", *fast, name, f"oci:{location()}:{name}")
    _done().write_text(wanted)


def _found(program: str) -> str:
    path = shutil.which(program)
    assert path is not None  # _check() has seen it
    return path


if __name__ == "__main__":
    try:
        build_all()
    except MissingError as missing:
        sys.exit(str(missing))
