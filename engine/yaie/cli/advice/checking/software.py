"""What doctor says about Python, packages, torch and the GPUs of this machine."""

import ctypes
import importlib.util
import platform
import re
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final

from yaie.cli.advice.checking.report import Finding, fail, ok, skip, warn
from yaie.cli.advice.gpus import InstalledGPU, installed
from yaie.runtime.startup.preflight import CUDA_DRIVER
from yaie_api import __version__
from yaie_api.engine_config import settings

ENGINE: Final = ("torch", "transformers", "fastapi", "uvicorn", "zmq", "safetensors", "tokenizers")
OPERATOR: Final = ("kopf", "kubernetes", "celpy")
OLDEST_PYTHON: Final = (3, 11)
_GIB: Final = 2**30


@dataclass(frozen=True)
class Torch:
    """The installed torch. `cuda`: the version that it was built for; "": none."""

    version: str
    cuda: str


def python() -> Finding:
    version = platform.python_version()
    if sys.version_info < OLDEST_PYTHON:
        return fail("Python", version, "install Python 3.11 or newer")
    if struct.calcsize("P") < 8:
        return fail("Python", f"{version}, 32 bit", "install a 64-bit Python: torch has no other")
    return ok("Python", f"{version} on {platform.system()} {platform.machine()}")


def packages() -> Finding:
    """Whether the packages of the extras are there; none of them is imported."""
    lacking = [name for name in ENGINE if importlib.util.find_spec(name) is None]
    without = [name for name in OPERATOR if importlib.util.find_spec(name) is None]
    return judge_packages(lacking, without)


def judge_packages(engine: Sequence[str], operator: Sequence[str]) -> Finding:
    """`engine`, `operator`: packages of these extras that are missing."""
    name, install = "packages", 'in the folder of the project: pip install -e ".[all]"'
    if engine:
        told = f"yaie {__version__} without {', '.join(engine)}: no engine can run here"
        return warn(name, told, install)
    if operator:
        told = f"yaie {__version__} without {', '.join(operator)}: `yaie up` cannot run here"
        return warn(name, told, install)
    return ok(name, f"yaie {__version__}, with all that engine and operator need")


def torch() -> Finding:
    return judge_torch(_torch(), _driver_cuda(), installed())


def judge_torch(found: Torch | None, driver: int | None, gpus: Sequence[InstalledGPU]) -> Finding:
    """`driver`: the newest CUDA that the driver knows, as 1000 * major; None: there is none."""
    if found is None:
        return skip("torch", "not installed")
    told = f"{found.version}, for CUDA {found.cuda}" if found.cuda else f"{found.version}, CPU only"
    if not gpus and driver is None:
        return ok("torch", told)
    if not found.cuda:
        return fail("torch", f"{told}: it cannot use the GPU", "install torch's build for CUDA")
    major = int(found.cuda.partition(".")[0])
    if driver is None:
        return fail("torch", f"{told}: no CUDA driver is loaded", f"install {CUDA_DRIVER}'s driver")
    if driver // 1000 < major:
        return fail(
            "torch",
            f"{told}, and the driver knows CUDA {driver // 1000}.{driver % 1000 // 10} only",
            f"update NVIDIA's driver to one that knows CUDA {major}, or install an older torch",
        )
    return ok("torch", told)


def gpus() -> Finding:
    return judge_gpus(installed(), has_devices=any(Path("/dev").glob("nvidia[0-9]*")))


def judge_gpus(found: Sequence[InstalledGPU], *, has_devices: bool) -> Finding:
    """`has_devices`: the kernel shows GPUs."""
    if not found and has_devices:
        return fail(
            "GPUs",
            "there are GPUs, but nvidia-smi does not list them",
            "install NVIDIA's driver and its tools, or pass them into this container",
        )
    if not found:
        return ok("GPUs", "none: models run on the CPU here")
    told = ", ".join(
        f"{gpu.name} ({gpu.free_bytes / _GIB:.1f} of {gpu.memory_bytes / _GIB:.1f} GiB free)"
        for gpu in found
    )
    told += f", driver {found[0].driver}"
    share = settings()["gpu_memory_utilization"].default
    short = [gpu for gpu in found if gpu.free_bytes < share * gpu.memory_bytes]
    if len(short) == len(found):
        return warn(
            "GPUs",
            f"{told}: none has the share of {share:g} free that an engine takes",
            "end what uses them (nvidia-smi lists it), or set --gpu-memory-utilization lower",
        )
    return ok("GPUs", told)


def _torch() -> Torch | None:
    """What is installed, from its files: the import would take seconds."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        return None
    try:
        version = metadata.version("torch")
        text = (Path(spec.submodule_search_locations[0]) / "version.py").read_text()
    except (metadata.PackageNotFoundError, OSError):
        return None
    built = re.search(r"^cuda\b.*=\s*'([\d.]+)'", text, re.MULTILINE)
    return Torch(version, built[1] if built else "")


def _driver_cuda() -> int | None:
    """The newest CUDA that the driver knows, as 1000 * major + 10 * minor; None: no driver."""
    try:
        driver = ctypes.CDLL(CUDA_DRIVER)
    except OSError:
        return None
    version = ctypes.c_int()
    return version.value if driver.cuDriverGetVersion(ctypes.byref(version)) == 0 else None
