"""Row-wise reference operations against their formulas in float64."""

import pytest
import torch

from yaie_kernels import (
    add_rms_norm,
    gelu_tanh_mul,
    qk_norm_rope_write,
    rms_norm,
    rope_,
    silu_mul,
)
from yaie_kernels.testing import judge


@pytest.mark.parametrize("shape", [(1, 64), (7, 257), (3, 5, 80)])
def test_rms_norm_is_its_formula(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x, weight = torch.randn(shape).to(dtype), torch.randn(shape[-1]).to(dtype)
    wide = x.double()
    exact = wide / (wide.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight.double()
    plain = torch.nn.functional.rms_norm(x, shape[-1:], weight, 1e-5)
    judge("rms_norm", rms_norm(x, weight, 1e-5), plain, exact)


def test_the_offset_is_added_before_the_weight_is_rounded(dtype: torch.dtype) -> None:
    """1 + a small weight would lose the weight's last bits at half precision."""
    x, weight = torch.randn(7, 96).to(dtype), (torch.randn(96) * 0.01).to(dtype)
    exact = rms_norm(x.double(), weight.double() + 1.0, 1e-6)
    plain = torch.nn.functional.rms_norm(x.float(), (96,), weight.float() + 1.0, 1e-6).to(dtype)
    judge("rms_norm", rms_norm(x, weight, 1e-6, 1.0), plain, exact)
    normed, _ = add_rms_norm(x, torch.zeros_like(x), weight, 1e-6, 1.0)
    assert torch.equal(normed, rms_norm(x, weight, 1e-6, 1.0))


def test_add_rms_norm_is_the_sum_and_its_norm(dtype: torch.dtype) -> None:
    x, residual, weight = (torch.randn(5, 96).to(dtype) for _ in range(3))
    normed, total = add_rms_norm(x, residual, weight[0], 1e-6)
    assert torch.equal(total, x + residual)
    assert torch.equal(normed, rms_norm(total, weight[0], 1e-6))


@pytest.mark.parametrize("head_dim", [64, 80, 96, 128])
@pytest.mark.parametrize("fused", [True, False], ids=["neighbours", "apart"])
def test_rope_multiplies_complex_pairs(head_dim: int, fused: bool) -> None:
    tokens, half = 6, head_dim // 2
    buffer = torch.randn(tokens, 7, head_dim, dtype=torch.float64)
    q, k = buffer[:, :4], buffer[:, 4:6]
    if not fused:
        q, k = q.clone(), k.clone()
    angle = torch.rand(40, half, dtype=torch.float64) * 6
    positions = torch.tensor([0, 39, 3, 3, 7, 1])
    turn = torch.polar(torch.ones_like(angle), angle)[positions].unsqueeze(1)
    want = [torch.complex(x[..., :half], x[..., half:]) * turn for x in (q, k)]
    before = buffer.clone()
    rope_(q, k, positions, torch.cat([angle.cos(), angle.sin()], -1))
    for got, pairs in zip((q, k), want, strict=True):
        torch.testing.assert_close(got, torch.cat([pairs.real, pairs.imag], -1))
    assert torch.equal(buffer[:, 6], before[:, 6]), "the values beside q and k stay"


def test_rope_does_not_join_tensors_that_only_look_alike() -> None:
    """Same strides, but k lies before q: one view over both would turn other memory."""
    buffer = torch.randn(3, 6, 64)
    alone = buffer.clone()
    table, positions = torch.randn(9, 64), torch.tensor([1, 5, 8])
    rope_(buffer[:, 2:4], buffer[:, :2], positions, table)
    q, k = alone[:, 2:4].clone(), alone[:, :2].clone()
    rope_(q, k, positions, table)
    assert torch.equal(buffer, torch.cat([k, q, alone[:, 4:]], dim=1))


@pytest.mark.parametrize("rotated", [2, 24, 48])
def test_partial_rope_leaves_the_rest_of_a_head_alone(rotated: int) -> None:
    whole = torch.randn(5, 6, 64)
    buffer, head = whole.clone(), whole[..., :rotated].clone()
    table, positions = torch.randn(9, rotated), torch.tensor([1, 5, 8, 0, 8])
    rope_(buffer[:, :4], buffer[:, 4:], positions, table)
    rope_(head[:, :4], head[:, 4:], positions, table)
    assert torch.equal(buffer, torch.cat([head, whole[..., rotated:]], dim=-1))


def test_gelu_tanh_mul_is_its_formula(dtype: torch.dtype) -> None:
    x = (torch.randn(3, 2 * 31) * 4).to(dtype)
    gate, up = x.double().chunk(2, -1)
    half_gate, half_up = x.chunk(2, -1)
    plain = torch.nn.functional.gelu(half_gate, approximate="tanh") * half_up
    inner = (2 / torch.pi) ** 0.5 * (gate + 0.044715 * gate**3)
    judge("gelu_tanh_mul", gelu_tanh_mul(x), plain, 0.5 * gate * (1 + inner.tanh()) * up)


def test_silu_mul_is_its_formula(dtype: torch.dtype) -> None:
    x = (torch.randn(3, 2 * 31) * 4).to(dtype)
    gate, up = x.double().chunk(2, -1)
    half_gate, half_up = x.chunk(2, -1)
    plain = torch.nn.functional.silu(half_gate) * half_up
    judge("silu_mul", silu_mul(x), plain, gate / (1 + torch.exp(-gate)) * up)


@pytest.mark.parametrize("rotated", [64, 24])
@pytest.mark.parametrize("normed", [True, False], ids=["norm", "no_norm"])
def test_the_fused_step_equals_its_parts(normed: bool, rotated: int) -> None:
    fused = torch.randn(4, 8, 64)
    parts = fused.clone()
    weights = [torch.randn(64), torch.randn(64)] if normed else [None, None]
    table, positions = torch.randn(9, rotated), torch.tensor([1, 5, 8, 0])
    slots = torch.tensor([5, 0, 31, 16])
    caches = torch.zeros(2, 2, 16, 2, 64)
    q, k, v = fused.split([4, 2, 2], dim=1)
    qk_norm_rope_write(q, k, v, *weights, 1e-6, positions, table, caches[0], caches[1], slots, 1.0)
    want_q, want_k, want_v = parts.split([4, 2, 2], dim=1)
    if normed:
        want_q = rms_norm(want_q, weights[0], 1e-6, 1.0)
        want_k = rms_norm(want_k, weights[1], 1e-6, 1.0)
    rope_(want_q, want_k, positions, table)
    torch.testing.assert_close(q, want_q)
    torch.testing.assert_close(caches[0].flatten(0, 1)[slots], want_k)
    assert torch.equal(caches[1].flatten(0, 1)[slots], want_v)


def test_no_rows_give_no_rows() -> None:
    assert rms_norm(torch.empty(0, 64), torch.ones(64), 1e-6).shape == (0, 64)
    assert silu_mul(torch.empty(0, 64)).shape == (0, 32)
    assert gelu_tanh_mul(torch.empty(0, 64)).shape == (0, 32)
