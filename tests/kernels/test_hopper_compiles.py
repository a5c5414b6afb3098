"""The Hopper kernel is compiled for its GPU, which needs none: there is no interpreter for it."""

import os

import pytest

if os.environ.get("TRITON_INTERPRET") == "1":
    pytest.skip("the interpreter compiles nothing", allow_module_level=True)
triton = pytest.importorskip("triton")

from triton.backends.compiler import GPUTarget  # noqa: E402 - only where there is Triton
from triton.experimental.gluon._runtime import GluonASTSource  # noqa: E402

from yaie_kernels.triton.attention import hopper  # noqa: E402

SHARED_BYTES = 227 * 1024  # of a multiprocessor
BYTES_16 = [["tt.divisibility", 16]]


@pytest.mark.slow
@pytest.mark.parametrize("head", [64, 128, 256])
def test_it_compiles_for_hopper(head: int) -> None:
    block_n, stages, programs = hopper._TILES[head]
    at_start, registers = hopper._REGISTERS[programs]
    constants = {
        "rows_ptr": None, "PAGE": 16, "BLOCK_M": hopper.BLOCK_M, "BLOCK_N": block_n, "HEAD": head,
        "STAGES": stages, "REGISTERS": registers, "DEFER": programs == 1,
        "HAS_WINDOW": True, "HAS_SOFTCAP": True,
    }  # fmt: skip
    names = hopper._hopper_kernel.arg_names
    signature = {name: "constexpr" if name in constants else "i32" for name in names}
    signature |= {"q_ptr": "*bf16", "out_ptr": "*bf16", "scale": "fp32", "softcap": "fp32"}
    signature |= dict.fromkeys(("tables_ptr", "lens_ptr", "starts_ptr", "claims_ptr"), "*i32")
    box = f"tensordesc<bf16[16, 64],{hopper._BOX!r}>"
    signature |= {"k_desc": box, "v_desc": box}
    aligned = ("q_ptr", "out_ptr", "q_token_stride", "q_head_stride", "out_token_stride")
    source = GluonASTSource(
        fn=hopper._hopper_kernel,
        signature=signature,
        constexprs=constants,
        attrs={(names.index(name),): BYTES_16 for name in aligned},
    )
    options = {"num_warps": 4, "enable_fp_fusion": True, "maxnreg": at_start}
    kernel = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    assert 0 < kernel.metadata.shared <= SHARED_BYTES // programs
    assert "wgmma.mma_async" in kernel.asm["ptx"]
