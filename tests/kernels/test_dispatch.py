"""CPU tensors go to the reference without importing Triton; the choice can be forced."""

import os
import subprocess
import sys

import torch

from yaie_kernels import dispatch, reference


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_cpu_uses_the_reference() -> None:
    assert dispatch.backend(torch.ones(1)) is reference


def test_a_cpu_process_loads_no_kernels() -> None:
    code = "import sys, yaie_kernels as k, torch; k.silu_mul(torch.ones(1, 4)); "
    done = run(code + "sys.exit('yaie_kernels.triton' in sys.modules)", YAIE_KERNELS="auto")
    assert done.returncode == 0, done.stderr


def test_kernels_can_be_forced_in_the_interpreter() -> None:
    code = (
        "import torch, yaie_kernels as k\n"
        "x = torch.ones(1, 4)\n"
        "assert k.dispatch.backend(x).__name__ == 'yaie_kernels.triton'\n"
        "assert torch.allclose(k.silu_mul(x), torch.nn.functional.silu(torch.ones(1, 2)))\n"
    )
    done = run(code, YAIE_KERNELS="triton", TRITON_INTERPRET="1")
    assert done.returncode == 0, done.stderr


def test_an_unknown_choice_is_refused_with_the_known_ones() -> None:
    done = run("import yaie_kernels", YAIE_KERNELS="cuda")
    assert done.returncode != 0
    assert "want one of auto, reference, triton" in done.stderr
