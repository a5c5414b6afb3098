"""Each operation goes to the first backend of its order that is there and accepts the arguments."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from yaie_kernels import library, reference, registry
from yaie_kernels.registry import AUTO, BACKENDS, OPERATIONS, order, parse, table


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
    on_cpu = table("cpu", parse("auto"))
    assert on_cpu.rms_norm is reference.rms_norm
    assert registry.backend(torch.ones(1)).sample is reference.sample


def test_a_table_knows_no_other_names() -> None:
    with pytest.raises(AttributeError):
        _ = table("cpu", parse("auto")).rms_norms


@pytest.mark.parametrize("backend", ["reference", "triton"])
def test_the_engines_operations_are_those_of_both_its_backends(backend: str) -> None:
    module = pytest.importorskip(f"yaie_kernels.{backend}")
    assert set(module.__all__) == BACKENDS[backend]


def test_cuda_and_library_have_what_the_table_says() -> None:
    from yaie_kernels import cuda

    assert set(cuda.__all__) == BACKENDS["cuda"]
    assert all(callable(getattr(library, name)) for name in BACKENDS["library"])


@pytest.mark.parametrize("device", list(AUTO))
def test_every_order_names_backends_that_have_the_operation_and_ends_without_limits(
    device: str,
) -> None:
    for operation in OPERATIONS:
        names = order(operation, device, parse("auto"))
        assert all(operation in BACKENDS[name] for name in names)
        assert (names[-1], operation) not in registry.LIMITS


def test_one_operation_may_be_named_beside_a_default_for_the_others() -> None:
    choice = parse("triton, paged_attention=cuda,rms_norm=auto")
    assert order("paged_attention", "cuda", choice)[0] == "cuda"
    assert order("silu_mul", "cpu", choice)[0] == "triton"
    assert order("rms_norm", "cpu", choice) == ("reference",)


def test_a_default_leaves_operations_that_it_does_not_have_to_auto() -> None:
    assert order("sample", "cuda", parse("cuda")) == ("triton",)
    assert order("swap_pages", "cpu", parse("triton")) == ("reference",)


def test_a_call_beyond_a_backends_limits_goes_to_the_next_of_the_order() -> None:
    on_cpu = table("cpu", parse("rms_norm=library"))
    x, weight = torch.randn(3, 8), torch.randn(8)
    torch.testing.assert_close(
        on_cpu.rms_norm(x, weight, 1e-6, 1.0), reference.rms_norm(x, weight, 1e-6, 1.0)
    )
    torch.testing.assert_close(
        on_cpu.rms_norm(x, weight, 1e-6), reference.rms_norm(x, weight, 1e-6)
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("vulkan", "'vulkan' is none of auto, reference, triton, cuda, library"),
        ("auto,rms_norm=fast", "'fast' is none of"),
        ("attention=cuda", "no operation 'attention'"),
        ("sample=cuda", "cuda has no sample"),
    ],
)
def test_what_is_unknown_is_refused_with_the_known_names(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(text)


def test_a_wrong_choice_stops_the_import() -> None:
    done = run("import yaie_kernels", YAIE_KERNELS="vulkan")
    assert done.returncode != 0
    assert "none of auto, reference, triton, cuda, library" in done.stderr


def test_a_cpu_process_loads_no_kernels_and_looks_for_none() -> None:
    code = "import sys, yaie_kernels as k, torch; k.silu_mul(torch.ones(1, 4)); "
    code += "sys.exit(bool({'yaie_kernels.triton', 'yaie_kernels.cuda'} & set(sys.modules)))"
    done = run(code, YAIE_KERNELS="auto")
    assert done.returncode == 0, done.stderr


def test_triton_can_be_forced_in_the_interpreter() -> None:
    code = (
        "import torch, yaie_kernels as k\n"
        "x = torch.ones(1, 4)\n"
        "assert k.registry.backend(x).silu_mul.__module__.startswith('yaie_kernels.triton')\n"
        "assert torch.allclose(k.silu_mul(x), torch.nn.functional.silu(torch.ones(1, 2)))\n"
    )
    done = run(code, YAIE_KERNELS="triton", TRITON_INTERPRET="1")
    assert done.returncode == 0, done.stderr


def test_kernels_that_were_asked_for_and_are_not_built_are_an_error_that_says_what_to_do(
    tmp_path: Path,
) -> None:
    code = "import torch, yaie_kernels as k; k.silu_mul(torch.ones(1, 4))"
    done = run(code, YAIE_KERNELS="cuda", YAIE_CUDA_KERNELS=str(tmp_path))
    assert done.returncode != 0
    assert "python -m yaie_kernels.cuda.build" in done.stderr
