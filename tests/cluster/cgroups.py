"""A control group of its own for the test node's pods, on cgroup v1 and v2.

`sandbox.sh` names it and removes it, so that nothing stays after the node is gone.
"""

import os
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
V1_CONTROLLERS = (
    *("blkio", "cpu", "cpuacct", "cpuset", "devices", "freezer"),
    *("hugetlb", "memory", "pids", "systemd"),
)


def create() -> str:
    """Make the group that the sandbox named; returns its name as the kubelet wants it."""
    name = os.environ["YAIE_SANDBOX_CGROUP"]
    if (ROOT / "cgroup.controllers").exists():
        _create_v2(ROOT / name.lstrip("/"))
    else:
        for controller in filter(Path.is_dir, (ROOT / each for each in V1_CONTROLLERS)):
            (controller / name.lstrip("/")).mkdir(exist_ok=True)
    return name


def _create_v2(group: Path) -> None:
    available = (ROOT / "cgroup.controllers").read_text().split()
    enable = " ".join(f"+{controller}" for controller in available)
    (ROOT / "cgroup.subtree_control").write_text(enable)
    group.mkdir(exist_ok=True)
    (group / "cgroup.subtree_control").write_text(enable)
