"""The kernel tests in Triton's CPU interpreter, one process per file (see conftest)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "triton_kernels"
ON_GPU_ONLY = "test_triton_launch.py"
"""How kernels overlap: in the interpreter none does."""
FILES = sorted({path.name for path in FOLDER.glob("test_*.py")} - {ON_GPU_ONLY})


@pytest.mark.drill
@pytest.mark.timeout(300)  # the attention kernels take 20 s alone, more on a busy machine
@pytest.mark.parametrize("file", FILES)
def test_kernels_pass_in_the_interpreter(file: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(FOLDER / file)]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    environment.pop("PYTEST_ADDOPTS", None)
    run = subprocess.run(
        command,
        env=environment,
        cwd=FOLDER.parents[2],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
    assert " passed" in run.stdout
