"""Projections are the product, with the norm before it and the gate behind it."""

import pytest
import torch
from torch.nn.functional import gelu, silu

from yaie_kernels import add_rms_norm, linear, norm_linear, rms_norm


def tensors() -> tuple[torch.Tensor, ...]:
    """(x, residual [5, 24], norm [24], weight [14, 24], bias [14])."""
    return (
        torch.randn(5, 24),
        torch.randn(5, 24),
        torch.rand(24),
        torch.randn(14, 24),
        torch.randn(14),
    )


def test_a_linear_is_the_product_and_the_bias() -> None:
    x, _, _, weight, bias = tensors()
    assert torch.allclose(linear(x, weight), x @ weight.T, atol=1e-5)
    assert torch.allclose(linear(x, weight, bias), x @ weight.T + bias, atol=1e-5)


@pytest.mark.parametrize(
    ("gate", "act"),
    [("silu", silu), ("gelu_tanh", lambda x: gelu(x, approximate="tanh"))],
    ids=["silu", "gelu"],
)
def test_a_gate_takes_the_first_half_of_the_rows(gate: str, act: object) -> None:
    x, _, _, weight, bias = tensors()
    first, second = (x @ weight.T + bias).chunk(2, dim=-1)
    assert torch.allclose(linear(x, weight, bias, gate=gate), act(first) * second, atol=1e-5)


def test_the_norm_comes_first_and_the_sum_is_given_back() -> None:
    x, residual, norm, weight, bias = tensors()
    got, total = norm_linear(x, residual, norm, 1e-6, 1.0, weight, bias, gate="silu")
    normed, want = add_rms_norm(x, residual, norm, 1e-6, 1.0)
    assert torch.equal(total, want)
    assert torch.equal(got, linear(normed, weight, bias, gate="silu"))


def test_without_a_residual_x_is_the_sum() -> None:
    x, _, norm, weight, _ = tensors()
    got, total = norm_linear(x, None, norm, 1e-6, 0.0, weight)
    assert total is x
    assert torch.equal(got, linear(rms_norm(x, norm, 1e-6), weight))
