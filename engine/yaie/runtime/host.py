"""Cores and memory that this process may use: the container's limits, not the node's size."""

import math
import os
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
MEMINFO = Path("/proc/meminfo")


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


def available_memory_bytes(cgroup: Path = CGROUP, meminfo: Path = MEMINFO) -> int:
    """Memory that a new process could use, swap included: what the kernel calls available, or what
    is left to the control group if that is less, in bytes.
    """
    told = dict(line.partition(":")[::2] for line in _read(meminfo).splitlines())
    kib = [int(told.get(name, "0").split()[0]) for name in ("MemAvailable", "SwapFree")]
    free = sum(kib) * 1024 or usable_memory_bytes(cgroup)
    limit, used = _read(cgroup / "memory.max"), _read(cgroup / "memory.current")
    if not limit.isdecimal() or not used.isdecimal():
        return free
    stat = dict(line.partition(" ")[::2] for line in _read(cgroup / "memory.stat").splitlines())
    cached = int(stat.get("inactive_file", "0")) + int(stat.get("active_file", "0"))
    return max(0, min(free, int(limit) - int(used) + cached))


def _read(path: Path) -> str:
    """Content of a small file; empty where there is no such file (other systems)."""
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return ""
