"""Norms, rotation and gated activation in C++ and CUDA, judged by torch's own error."""

import pytest
import torch

from yaie_kernels import cuda, reference
from yaie_kernels.testing import judge

# one element, primes, less and more than a block's registers hold, rows that are not 16-byte sized
SHAPES = [(1, 1), (1, 1024), (7, 97), (3, 4096), (2, 40000), (33, 16, 128), (5, 3, 10)]


def ids(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


@pytest.mark.parametrize("offset", [0.0, 1.0])
@pytest.mark.parametrize("shape", SHAPES, ids=ids)
def test_rms_norm(shape: tuple[int, ...], offset: float, dtype: torch.dtype, device: str) -> None:
    x = torch.randn(shape, dtype=dtype, device=device)
    weight = torch.randn(shape[-1], dtype=dtype, device=device)
    got = cuda.rms_norm(x, weight, 1e-6, offset)
    plain = reference.rms_norm(x, weight, 1e-6, offset)
    judge("rms_norm", got, plain, reference.rms_norm(x.double(), weight.double(), 1e-6, offset))


def test_rms_norm_of_a_view_into_a_fused_projection(dtype: torch.dtype, device: str) -> None:
    fused = torch.randn(5, 12, 64, dtype=dtype, device=device)
    x, weight = fused[:, 3:7], torch.randn(64, dtype=dtype, device=device)
    got = cuda.rms_norm(x, weight, 1e-5)
    assert torch.equal(got, cuda.rms_norm(x.contiguous(), weight, 1e-5))


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if len(shape) == 2], ids=ids)
def test_add_rms_norm(shape: tuple[int, int], dtype: torch.dtype, device: str) -> None:
    x, residual = torch.randn((2, *shape), dtype=dtype, device=device)
    weight = torch.randn(shape[1], dtype=dtype, device=device)
    got, total = cuda.add_rms_norm(x, residual, weight, 1e-6)
    plain, sums = reference.add_rms_norm(x, residual, weight, 1e-6)
    assert torch.equal(total, sums)
    judge("norm", got, plain, reference.rms_norm(sums.double(), weight.double(), 1e-6))


@pytest.mark.parametrize(
    "sizes",
    [(1, 16, 8, 128, 128), (67, 5, 1, 64, 32), (70, 32, 8, 128, 128), (3, 2, 2, 80, 20)],
)
def test_rope(sizes: tuple[int, ...], dtype: torch.dtype, device: str) -> None:
    tokens, q_heads, k_heads, head_dim, rotated = sizes
    fused = torch.randn(tokens, q_heads + k_heads, head_dim, dtype=dtype, device=device)
    table = torch.randn(512, rotated, device=device)
    positions = torch.randint(0, 512, (tokens,), device=device)
    got, plain, exact = fused.clone(), fused.clone(), fused.double()
    for rope_, x, angles in (
        (cuda.rope_, got, table),
        (reference.rope_, plain, table),
        (reference.rope_, exact, table.double()),
    ):
        rope_(x[:, :q_heads], x[:, q_heads:], positions, angles)
    judge("rope", got, plain, exact)


@pytest.mark.parametrize("shape", [(1, 2), (33, 6), (3, 2048), (5, 12288)], ids=ids)
def test_silu_mul(shape: tuple[int, int], dtype: torch.dtype, device: str) -> None:
    x = torch.randn(shape, dtype=dtype, device=device) * 4
    judge("silu", cuda.silu_mul(x), reference.silu_mul(x), reference.silu_mul(x.double()))


def test_no_tokens_are_no_work(device: str) -> None:
    x, weight = torch.ones(0, 64, device=device), torch.ones(64, device=device)
    assert cuda.rms_norm(x, weight, 1e-6).shape == (0, 64)
    assert cuda.add_rms_norm(x, x, weight, 1e-6)[1].shape == (0, 64)
    assert cuda.silu_mul(x).shape == (0, 32)
    heads = torch.ones(0, 2, 64, device=device)
    none = torch.ones(0, dtype=torch.int64, device=device)
    cuda.rope_(heads, heads, none, torch.ones(4, 64, device=device))


def test_arguments_that_do_not_fit_are_refused_by_name(device: str) -> None:
    x = torch.ones(2, 64, device=device)
    with pytest.raises(RuntimeError, match="weight is Half, want Float"):
        cuda.rms_norm(x, torch.ones(64, dtype=torch.float16, device=device), 1e-6)
    with pytest.raises(RuntimeError, match="weight: want 64"):
        cuda.rms_norm(x, torch.ones(63, device=device), 1e-6)
    with pytest.raises(RuntimeError, match="residual: want the shape of x"):
        cuda.add_rms_norm(x, x[:1], torch.ones(64, device=device), 1e-6)
    with pytest.raises(RuntimeError, match="the last dimension is not contiguous"):
        cuda.silu_mul(x.T)
    with pytest.raises(RuntimeError, match="want float64, float32, float16 or bfloat16, not Int"):
        cuda.silu_mul(x.int())
