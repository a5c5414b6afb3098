"""Cores and memory that this process may use: the container's limits, not the node's size."""

import math
import os
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")


def usable_cores(cgroup: Path = CGROUP) -> int:
    """Number of cores by CPU affinity and the control group's quota, at least 1."""
    cores = len(os.sched_getaffinity(0))
    quota, _, period = _read(cgroup / "cpu.max").partition(" ")
    if quota.isdecimal() and period.isdecimal() and int(period) > 0:
        cores = min(cores, math.ceil(int(quota) / int(period)))
    return max(1, cores)


def usable_memory_bytes(cgroup: Path = CGROUP) -> int:
    """The machine's memory, or the control group's limit if that is smaller, in bytes."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = _read(cgroup / "memory.max")
    return min(total, int(limit)) if limit.isdecimal() else total


def _read(path: Path) -> str:
    """Content of a one-line file; empty where there is no such file (other systems)."""
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return ""
