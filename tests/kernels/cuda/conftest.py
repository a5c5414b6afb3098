"""The C++ versions, built once by g++ (on a GPU: CUDA ones too) and kept by their sources' hash."""

import fcntl
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from yaie_kernels.cuda import build

FOLDER = Path(__file__).resolve().parents[3] / ".cache" / "kernels"


@pytest.fixture(scope="session", autouse=True)
def library() -> Path:
    """The library, loaded: `torch.ops.yaie` works from here on."""
    on_gpu = torch.cuda.is_available()
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "lock").open("w") as lock:  # workers of one session build once
        fcntl.flock(lock, fcntl.LOCK_EX)
        path = build.find(FOLDER, build.capability())
        if path is None:
            if shutil.which("c++") is None:
                pytest.skip("no C++ compiler")
            command = [sys.executable, "-m", "yaie_kernels.cuda.build", "--output", str(FOLDER)]
            command += [] if on_gpu else ["--cpu-only"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
            path = Path(done.stdout.splitlines()[-1])
    build.open_library(path)
    return path
