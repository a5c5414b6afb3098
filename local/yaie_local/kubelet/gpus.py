"""The GPUs of this machine: detection, and assignment to pods."""

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from yaie_operator.cluster import Object

GPU_RESOURCE: Final = "nvidia.com/gpu"
ENV_GPUS: Final = "YAIE_LOCAL_GPUS"
"""Variable that overrides detection: ids in the form of CUDA_VISIBLE_DEVICES, e.g. `0,1`; empty:
none."""


def detect(environ: Mapping[str, str], devices: Path = Path("/dev")) -> list[str]:
    """Ids of the usable GPUs, in the order of assignment."""
    for name in (ENV_GPUS, "CUDA_VISIBLE_DEVICES"):
        if name in environ:
            return [part.strip() for part in environ[name].split(",") if part.strip()]
    found = _from_nvidia_smi()
    if found is not None:
        return found
    numbers = [re.fullmatch(r"nvidia(\d+)", entry.name) for entry in devices.glob("nvidia*")]
    return sorted((match[1] for match in numbers if match), key=int)


def _from_nvidia_smi() -> list[str] | None:
    """Indices of the GPUs that nvidia-smi lists; None if it is missing or fails."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    try:
        done = subprocess.run(
            [tool, "--query-gpu=index", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None
    return done.stdout.split() if done.returncode == 0 else None


def wanted_by(pod: Object) -> int:
    """Number of GPUs that a pod requests."""
    resources = pod["spec"]["containers"][0].get("resources") or {}
    limits = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    return int(limits.get(GPU_RESOURCE, 0))


class GPUPool:
    """Owner of the assignment of GPUs to pods."""

    def __init__(self, ids: list[str]) -> None:
        self._ids = ids
        self._held: dict[str, list[str]] = {}

    def take(self, holder: str, count: int) -> list[str] | None:
        """Assign `count` GPUs to `holder` and return their ids; None if fewer are free."""
        free = self._free()
        if len(free) < count:
            return None
        self._held[holder] = free[:count]
        return self._held[holder]

    def give_back(self, holder: str) -> None:
        self._held.pop(holder, None)

    def shortage(self, count: int) -> str:
        """Message for the user: why `count` GPUs are not available now, and what to do."""
        if len(self._ids) < count:
            return (
                f"needs {count} GPU(s), this machine has {len(self._ids)}; set "
                "resources.gpu.count: 0 to run on the CPU"
            )
        holders = ", ".join(sorted(name for name, ids in self._held.items() if ids))
        return (
            f"Insufficient {GPU_RESOURCE}: needs {count} GPU(s), {len(self._free())} of "
            f"{len(self._ids)} free (held by {holders}); scale another model down"
        )

    def _free(self) -> list[str]:
        taken = {gpu for ids in self._held.values() for gpu in ids}
        return [gpu for gpu in self._ids if gpu not in taken]
