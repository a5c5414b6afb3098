"""The GPUs of this machine, as nvidia-smi tells them."""

import shutil
import subprocess
from dataclasses import dataclass
from typing import Final

_MIB: Final = 2**20
_TIMEOUT_S: Final = 3.0
_FIELDS: Final = "name,memory.total,memory.free,driver_version"


@dataclass(frozen=True, slots=True)
class InstalledGPU:
    """One GPU. Sizes in bytes."""

    name: str
    memory_bytes: int
    free_bytes: int
    driver: str


def installed() -> list[InstalledGPU]:
    """The GPUs; none where nvidia-smi is missing or fails."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    command = [tool, f"--query-gpu={_FIELDS}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return parsed(done.stdout) if done.returncode == 0 else []


def parsed(text: str) -> list[InstalledGPU]:
    """The GPUs of nvidia-smi's lines, sizes in MiB; lines of another form are passed over."""
    found = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == 4 and cells[1].isdecimal() and cells[2].isdecimal():
            name, total, free, driver = cells
            found.append(InstalledGPU(name, int(total) * _MIB, int(free) * _MIB, driver))
    return found
