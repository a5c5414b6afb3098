"""Row-wise kernels against float64, no worse than plain PyTorch at their dtype."""

# ruff: noqa: PLR0917 - pytest fills the arguments

import pytest
import torch
from torch.nn.functional import gelu, rms_norm, silu

from yaie_kernels import reference, triton
from yaie_kernels.testing import judge

ROWS = [1, 17]
COLS = [64, 257, 1024]


def plain_rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return rms_norm(x, x.shape[-1:], weight, 1e-6)


def exact_rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return reference.rms_norm(x.double(), weight.double(), 1e-6)


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("cols", COLS)
def test_rms_norm(rows: int, cols: int, dtype: torch.dtype, device: str) -> None:
    x = (torch.randn(rows, cols) * 3).to(dtype).to(device)
    weight = torch.randn(cols).to(dtype).to(device)
    got = triton.rms_norm(x, weight, 1e-6)
    judge("rms_norm", got, plain_rms_norm(x, weight), exact_rms_norm(x, weight))


@pytest.mark.parametrize("head_dim", [64, 80, 96, 128])
def test_rms_norm_of_the_heads_of_a_fused_projection(
    head_dim: int, dtype: torch.dtype, device: str
) -> None:
    fused = torch.randn(5, 7, head_dim).to(dtype).to(device)
    heads, weight = fused[:, 1:4], torch.randn(head_dim).to(dtype).to(device)
    got = triton.rms_norm(heads, weight, 1e-6)
    assert got.is_contiguous()
    judge("qk_norm", got, plain_rms_norm(heads, weight), exact_rms_norm(heads, weight))


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("cols", COLS)
def test_add_rms_norm(rows: int, cols: int, dtype: torch.dtype, device: str) -> None:
    x, residual = (torch.randn(rows, cols).to(dtype).to(device) for _ in range(2))
    weight = torch.randn(cols).to(dtype).to(device)
    normed, total = triton.add_rms_norm(x, residual, weight, 1e-6)
    assert torch.equal(total, x + residual)
    exact = exact_rms_norm(total, weight)
    judge("add_rms_norm", normed, plain_rms_norm(total, weight), exact)


@pytest.mark.parametrize("cols", COLS)
def test_norms_with_an_offset(cols: int, dtype: torch.dtype, device: str) -> None:
    x, residual = (torch.randn(17, cols).to(dtype).to(device) for _ in range(2))
    weight = (torch.randn(cols) * 0.01).to(dtype).to(device)
    plain = rms_norm(x.float(), x.shape[-1:], weight.float() + 1.0, 1e-6).to(dtype)
    exact = reference.rms_norm(x.double(), weight.double() + 1.0, 1e-6)
    judge("rms_norm", triton.rms_norm(x, weight, 1e-6, 1.0), plain, exact)
    normed, total = triton.add_rms_norm(x, residual, weight, 1e-6, 1.0)
    exact = reference.rms_norm(total.double(), weight.double() + 1.0, 1e-6)
    plain = rms_norm(total.float(), x.shape[-1:], weight.float() + 1.0, 1e-6).to(dtype)
    judge("add_rms_norm", normed, plain, exact)


@pytest.mark.parametrize("rotated", [6, 48])
def test_partial_rope(rotated: int, dtype: torch.dtype, device: str) -> None:
    heads = torch.randn(13, 5, 64).to(dtype).to(device)
    table = torch.randn(97, rotated, device=device)
    positions = torch.randint(0, 97, (13,), device=device)
    got, plain, exact = heads.clone(), heads.clone(), heads.double()
    triton.rope_(got[:, :3], got[:, 3:], positions, table)
    reference.rope_(plain[:, :3], plain[:, 3:], positions, table)
    reference.rope_(exact[:, :3], exact[:, 3:], positions, table.double())
    judge("rope", got, plain, exact)
    assert torch.equal(got[..., rotated:], heads[..., rotated:])


@pytest.mark.parametrize("tokens", [1, 13])
@pytest.mark.parametrize(("q_heads", "kv_heads"), [(4, 4), (6, 3), (8, 1)])
@pytest.mark.parametrize("head_dim", [64, 80, 96, 128])
def test_rope_turns_strided_q_and_k_in_place(
    tokens: int, q_heads: int, kv_heads: int, head_dim: int, dtype: torch.dtype, device: str
) -> None:
    fused = torch.randn(tokens, q_heads + 2 * kv_heads, head_dim).to(dtype).to(device)
    table = torch.randn(97, head_dim, device=device)
    positions = torch.randint(0, 97, (tokens,), device=device)
    got, plain, exact = fused.clone(), fused.clone(), fused.double()
    for run, buffer, angles in (
        (triton.rope_, got, table),
        (reference.rope_, plain, table),
        (reference.rope_, exact, table.double()),
    ):
        run(buffer[:, :q_heads], buffer[:, q_heads : q_heads + kv_heads], positions, angles)
    judge("rope", got, plain, exact)
    assert torch.equal(got[:, q_heads + kv_heads :], fused[:, q_heads + kv_heads :])


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("cols", [1, 96, 1031])
def test_silu_mul(rows: int, cols: int, dtype: torch.dtype, device: str) -> None:
    gate_up = (torch.randn(rows, 2 * cols) * 4).to(dtype).to(device)
    gate, up = gate_up.chunk(2, -1)
    wide_gate, wide_up = gate.double(), up.double()
    exact = wide_gate * torch.sigmoid(wide_gate) * wide_up
    judge("silu_mul", triton.silu_mul(gate_up), silu(gate) * up, exact)


@pytest.mark.parametrize("cols", [1, 96, 1031])
def test_gelu_tanh_mul(cols: int, dtype: torch.dtype, device: str) -> None:
    gate_up = (torch.randn(17, 2 * cols) * 4).to(dtype).to(device)
    gate, up = gate_up.chunk(2, -1)
    exact = gelu(gate.double(), approximate="tanh") * up.double()
    plain = gelu(gate, approximate="tanh") * up
    judge("gelu_tanh_mul", triton.gelu_tanh_mul(gate_up), plain, exact)


def test_no_rows_give_no_rows(device: str) -> None:
    x, weight = torch.empty(0, 64, device=device), torch.ones(64, device=device)
    assert triton.rms_norm(x, weight, 1e-6).shape == (0, 64)
    assert triton.add_rms_norm(x, x, weight, 1e-6)[0].shape == (0, 64)
    assert triton.silu_mul(x).shape == (0, 32)
    assert triton.gelu_tanh_mul(x).shape == (0, 32)
    heads = x.view(0, 1, 64)
    positions = torch.empty(0, dtype=torch.int64, device=device)
    triton.rope_(heads, heads.clone(), positions, torch.ones(4, 64, device=device))
