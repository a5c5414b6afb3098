"""Projections of a few rows against float64, no worse than plain PyTorch at their dtype."""

import pytest
import torch
from torch.nn import functional

from yaie_kernels import reference, triton
from yaie_kernels.testing import judge

ROWS = [1, 2, 3, 15, 16, 17, 33, 127, 255, 256]
SHAPES = [(64, 256), (37, 520), (200, 1288)]  # the last two are multiples of no tile
GATES = [None, "silu", "gelu_tanh"]
Parts = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def parts(rows: int, n: int, k: int, dtype: torch.dtype, device: str) -> Parts:
    """(x [rows, k], residual [rows, k], norm [k], weight [n, k], bias [n])."""
    x, residual = torch.randn(2, rows, k).unbind()
    norm, bias = torch.rand(k) + 0.5, torch.randn(n)
    weight = torch.randn(n, k) / k**0.5
    x, residual, norm, weight, bias = (
        part.to(dtype).to(device) for part in (x, residual, norm, weight, bias)
    )
    if device == "cuda":
        torch.cuda.synchronize()  # weights are constants: they may be read ahead
    return x, residual, norm, weight, bias


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize(("n", "k"), SHAPES)
def test_linear(rows: int, n: int, k: int, dtype: torch.dtype, device: str) -> None:
    x, _, _, weight, bias = parts(rows, n, k, dtype, device)
    for shift in (None, bias):
        exact = functional.linear(
            x.double(), weight.double(), None if shift is None else shift.double()
        )
        got = triton.linear(x, weight, shift)
        judge("linear", got, functional.linear(x, weight, shift), exact)


@pytest.mark.parametrize("gate", GATES[1:])
@pytest.mark.parametrize("rows", [1, 5, 17, 33, 255])
def test_a_gated_linear(gate: str, rows: int, dtype: torch.dtype, device: str) -> None:
    x, _, _, weight, bias = parts(rows, 2 * 37, 520, dtype, device)
    exact = reference.linear(x.double(), weight.double(), bias.double(), gate=gate)
    plain = reference.linear(x, weight, bias, gate=gate)
    judge("gated", triton.linear(x, weight, bias, gate=gate), plain, exact)


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("first", [False, True])
def test_a_linear_after_a_norm(
    rows: int, gate: str | None, first: bool, dtype: torch.dtype, device: str
) -> None:
    x, residual, norm, weight, bias = parts(rows, 74, 520, dtype, device)
    begun = None if first else residual
    got, total = triton.norm_linear(x, begun, norm, 1e-6, 1.0, weight, bias, gate=gate)
    want = x if begun is None else x + begun
    assert torch.equal(total, want)
    plain, _ = reference.norm_linear(want, None, norm, 1e-6, 1.0, weight, bias, gate=gate)
    wide = (part.double() for part in (norm, weight, bias))
    wide_norm, wide_weight, wide_bias = wide
    exact, _ = reference.norm_linear(
        want.double(), None, wide_norm, 1e-6, 1.0, wide_weight, wide_bias, gate=gate
    )
    judge("norm_linear", got, plain, exact)


@pytest.mark.parametrize("rows", [2, 9, 16, 17, 64, 200])
def test_a_row_does_not_depend_on_the_others(rows: int, dtype: torch.dtype, device: str) -> None:
    x, residual, norm, weight, _ = parts(rows, 96, 520, dtype, device)
    other = torch.cat((x[:1], torch.randn_like(x[1:]) * 100))
    for left, right in (
        (triton.linear(x, weight), triton.linear(other, weight)),
        (
            triton.norm_linear(x, residual, norm, 1e-6, 0.0, weight)[0],
            triton.norm_linear(other, residual, norm, 1e-6, 0.0, weight)[0],
        ),
    ):
        assert torch.equal(left[0], right[0])
        assert not torch.equal(left[1], right[1])


def test_rows_of_a_wider_buffer_are_read_where_they_are(dtype: torch.dtype, device: str) -> None:
    x, _, _, weight, _ = parts(4, 64, 256, dtype, device)
    wide = torch.randn(4, 300, device=device).to(dtype)
    wide[:, :256] = x
    assert torch.equal(triton.linear(wide[:, :256], weight), triton.linear(x, weight))


def test_float32_stays_with_the_library(device: str) -> None:
    x, _, _, weight, bias = parts(1, 64, 256, torch.float32, device)
    assert torch.equal(triton.linear(x, weight, bias), functional.linear(x, weight, bias))


def test_no_rows_give_no_rows(dtype: torch.dtype, device: str) -> None:
    x, _, norm, weight, _ = parts(0, 64, 256, dtype, device)
    assert triton.linear(x, weight).shape == (0, 64)
    assert triton.norm_linear(x, x, norm, 1e-6, 0.0, weight, gate="silu")[0].shape == (0, 32)
