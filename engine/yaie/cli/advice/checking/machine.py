"""What doctor says about the memory, disks, limits and network of this machine."""

import os
import resource
import shutil
import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from yaie.checkpoint.download.cached import cache_folder
from yaie.cli.advice.checking.report import Finding, fail, ok, skip, warn
from yaie.runtime import host
from yaie_api import names
from yaie_api.download.amounts import in_bytes

GIB: Final = 2**30
SHM: Final = "/dev/shm"  # noqa: S108 - the shared memory itself
SMALL_SHM: Final = 256 * 2**20
"""Docker gives containers 64 MiB, which is too little for torch's shared tensors."""
FEW_FILES: Final = 4096
"""A server holds a descriptor for each connection."""
SMALL_CACHE: Final = 20 * 10**9
"""The weights of an 8B model in bfloat16 take 16 GB."""
Reach = Callable[[str], str]
HUB: Final = "https://huggingface.co"
_HUB_TIMEOUT_S: Final = 2.5
_TRUE: Final = frozenset({"1", "true", "yes", "on"})


def memory() -> Finding:
    return judge_memory(host.available_memory_bytes(), host.usable_cores())


def judge_memory(free_bytes: int, cores: int) -> Finding:
    told = f"{free_bytes / GIB:.1f} GiB free, {cores} cores"
    if free_bytes < 2 * GIB:
        todo = "end other programs, or raise the container's limit: torch alone takes a GiB"
        return warn("memory", told, todo)
    return ok("memory", told)


def shared_memory() -> Finding:
    if not Path(SHM).is_dir():
        return judge_shared_memory(None, writable=False)
    return judge_shared_memory(shutil.disk_usage(SHM).free, writable=os.access(SHM, os.W_OK))


def judge_shared_memory(free_bytes: int | None, *, writable: bool) -> Finding:
    """`free_bytes`: None: there is none."""
    if free_bytes is None or not writable:
        return fail(
            SHM,
            "missing" if free_bytes is None else "this user may not write there",
            "mount a tmpfs there (docker run --tmpfs /dev/shm, or --shm-size 1g)",
        )
    if free_bytes < SMALL_SHM:
        return warn(SHM, f"{in_bytes(free_bytes)} free", "docker run --shm-size 1g")
    return ok(SHM, f"{in_bytes(free_bytes)} free")


def open_files() -> Finding:
    return judge_open_files(*resource.getrlimit(resource.RLIMIT_NOFILE))


def judge_open_files(soft: int, hard: int) -> Finding:
    """`soft`, `hard`: limits of the number of descriptors; -1: none."""
    if soft == resource.RLIM_INFINITY or soft >= FEW_FILES:
        return ok("open files", "no limit" if soft == resource.RLIM_INFINITY else f"up to {soft}")
    most = 65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536)
    raised = (
        f"ulimit -n {most}" if most > soft else "raise the hard limit (limits.conf, LimitNOFILE)"
    )
    return warn("open files", f"up to {soft}: as many connections, less some", raised)


def cache() -> Finding:
    """The folder that models are kept in, or where it will be made."""
    folder = cache_folder()
    there = next(one for one in (folder, *folder.parents) if one.exists())
    return judge_cache(folder, shutil.disk_usage(there).free, writable=os.access(there, os.W_OK))


def judge_cache(folder: Path, free_bytes: int, *, writable: bool) -> Finding:
    elsewhere = "set HF_HOME to a folder on a larger disk, or remove models: yaie ls, yaie rm NAME"
    if not writable:
        return fail("model cache", f"{folder}: this user may not write there", "set HF_HOME")
    told = f"{folder}: {in_bytes(free_bytes)} free"
    if free_bytes < 10**9:
        return fail("model cache", told, elsewhere)
    return (
        warn("model cache", told, elsewhere)
        if free_bytes < SMALL_CACHE
        else ok("model cache", told)
    )


def hub() -> Finding:
    return judge_hub(os.environ, _reach)


def judge_hub(environ: Mapping[str, str], reach: Reach) -> Finding:
    """`reach`: why an address cannot be reached; "": it can."""
    if environ.get("HF_HUB_OFFLINE", "").lower() in _TRUE:
        return skip("hub", "HF_HUB_OFFLINE is set: models come from the cache and from folders")
    url = environ.get("HF_ENDPOINT", HUB)
    if why := reach(url):
        todo = "models come from the cache and from folders; a mirror is named by HF_ENDPOINT"
        return warn("hub", f"offline: {url} cannot be reached ({why})", todo)
    token = "with a token" if environ.get("HF_TOKEN") else "without a token (HF_TOKEN)"
    return ok("hub", f"{url} answers, {token}")


def port() -> Finding:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", names.HTTP_PORT))
        except OSError as error:
            return warn(
                "port",
                f"{names.HTTP_PORT} cannot be had: {error.strerror}",
                "a server may run already; --port 0 picks a free one",
            )
    return ok("port", f"{names.HTTP_PORT} is free")


def _reach(url: str) -> str:
    request = urllib.request.Request(url, method="HEAD")  # noqa: S310 - the user's own endpoint
    try:
        with urllib.request.urlopen(request, timeout=_HUB_TIMEOUT_S):  # noqa: S310 - same
            return ""
    except urllib.error.HTTPError:
        return ""  # it answers
    except (OSError, ValueError) as error:
        return str(getattr(error, "reason", error))
