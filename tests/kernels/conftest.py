"""Where kernels are tested: on the GPU where there is one, else in Triton's interpreter.

Triton reads TRITON_INTERPRET when its kernels are defined, so the interpreter needs a process of
its own: `test_interpreter.py` starts it; else tests/kernels/triton_kernels is not collected.
"""

import os
import warnings

import pytest
import torch

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
with warnings.catch_warnings():  # a CUDA build of torch on a machine without a driver may warn
    warnings.simplefilter("ignore")
    ON_GPU = not INTERPRETED and torch.cuda.is_available()

collect_ignore = [] if INTERPRETED or ON_GPU else ["triton_kernels"]
DTYPES = [torch.float32, torch.float16, *([torch.bfloat16] if ON_GPU else [])]
# query heads per KV head, head_dim: all pairs on the GPU, each value once in the slow interpreter
HEADS = [(ratio, width) for ratio in (1, 2, 4, 8) for width in (64, 80, 96, 128)]
HEADS = HEADS if ON_GPU else [HEADS[0], HEADS[5], HEADS[10], HEADS[15]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        path = item.path.as_posix()
        if ON_GPU and ("tests/kernels/triton_kernels/" in path or "tests/kernels/cuda/" in path):
            item.add_marker(pytest.mark.gpu)


@pytest.fixture
def device() -> str:
    return "cuda" if ON_GPU else "cpu"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "dtype" in metafunc.fixturenames:
        module = metafunc.module.__name__
        dtypes = DTYPES
        if "test_cuda" in module:  # C++: bfloat16 on the CPU too
            dtypes = [torch.float32, torch.float16, torch.bfloat16]
        if INTERPRETED:  # slow: rounding matters where values are stored, not in attention's sums
            dtypes = DTYPES[:1] if "attention" in module else DTYPES[1:]
        metafunc.parametrize("dtype", dtypes, ids=lambda dtype: str(dtype).removeprefix("torch."))
    if "heads" in metafunc.fixturenames:
        metafunc.parametrize("heads", HEADS, ids=lambda pair: f"G{pair[0]}-D{pair[1]}")


@pytest.fixture(autouse=True)
def _one_thread_same_numbers() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
