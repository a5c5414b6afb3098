"""The fused qk-norm, rope and cache write against the separate operations in float64."""

# ruff: noqa: PLR0917 - pytest fills the arguments

from types import ModuleType

import pytest
import torch

from yaie_kernels import reference, triton
from yaie_kernels.testing import judge


def run(
    module: ModuleType,
    dtype: torch.dtype,
    fused: torch.Tensor,
    caches: list[torch.Tensor],
    weights: list[torch.Tensor | None],
    table: torch.Tensor,
    positions: torch.Tensor,
    slots: torch.Tensor,
    q_heads: int,
    kv_heads: int,
) -> tuple[torch.Tensor, ...]:
    """The rotated q and both caches, computed at dtype."""
    buffer, k_cache, v_cache = (tensor.to(dtype, copy=True) for tensor in (fused, *caches))
    q, k, v = buffer.split([q_heads, kv_heads, kv_heads], dim=1)
    q_weight, k_weight = (None if w is None else w.to(dtype) for w in weights)
    angles = table.double() if dtype == torch.float64 else table
    module.qk_norm_rope_write(
        q, k, v, q_weight, k_weight, 1e-6, positions, angles, k_cache, v_cache, slots, 1.0
    )
    return q, k_cache, v_cache


@pytest.mark.parametrize("normed", [True, False], ids=["norm", "no_norm"])
@pytest.mark.parametrize(("q_heads", "kv_heads"), [(4, 2), (3, 3), (8, 1)])
@pytest.mark.parametrize(
    ("head_dim", "rotated"), [(64, 64), (80, 80), (128, 128), (96, 72), (64, 2)]
)
def test_qk_norm_rope_write(
    q_heads: int,
    kv_heads: int,
    head_dim: int,
    rotated: int,
    normed: bool,
    dtype: torch.dtype,
    device: str,
) -> None:
    tokens = 5
    fused = torch.randn(tokens, q_heads + 2 * kv_heads, head_dim).to(dtype).to(device)
    caches = [torch.randn(3, 16, kv_heads, head_dim).to(dtype).to(device) for _ in range(2)]
    weights = [torch.randn(head_dim).to(dtype).to(device) if normed else None for _ in range(2)]
    table = torch.randn(50, rotated, device=device)
    positions = torch.tensor([0, 49, 7, 7, 1], device=device)
    slots = torch.tensor([47, 0, 16, 15, 3], device=device)
    rest = (fused, caches, weights, table, positions, slots, q_heads, kv_heads)
    got = run(triton, dtype, *rest)
    plain = run(reference, dtype, *rest)
    exact = run(reference, torch.float64, *rest)
    for name, *tensors in zip(("q", "k_cache", "v_cache"), got, plain, exact, strict=True):
        judge(name, *tensors)
    assert torch.equal(got[2], plain[2]), "values are copied, not computed"
