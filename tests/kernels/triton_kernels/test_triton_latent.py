"""The fused step before a latent cache against its separate operations in float64."""

# ruff: noqa: PLR0917 - pytest fills the arguments

import pytest
import torch

from yaie_kernels import reference, triton
from yaie_kernels.testing import judge

Tensors = tuple[torch.Tensor, ...]


def run(module: object, case: Tensors, dtype: torch.dtype, *, interleaved: bool) -> Tensors:
    """(q afterwards, cache afterwards) at `dtype`."""
    fused, latent, weight, positions, angles, cache, slots = case
    q, cache = fused.to(dtype)[:, :, 3:], cache.to(dtype)
    module.latent_norm_rope_write(  # type: ignore[attr-defined]  # either module of operations
        q, latent.to(dtype), weight.to(dtype), 1e-6, positions, angles, cache, slots,
        interleaved=interleaved,
    )  # fmt: skip
    return q, cache


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize(("q_heads", "rank", "rope"), [(1, 32, 8), (5, 40, 12), (40, 512, 64)])
def test_it_norms_rotates_and_writes(
    q_heads: int, rank: int, rope: int, interleaved: bool, dtype: torch.dtype, device: str
) -> None:
    slots = torch.tensor([17, 3, 31], device=device)
    case = (
        torch.randn(3, q_heads, 3 + rope).to(dtype).to(device),  # q is a view past three columns
        torch.randn(3, 2 * (rank + rope)).to(dtype).to(device)[:, : rank + rope],
        torch.rand(rank).to(dtype).to(device),
        torch.tensor([0, 7, 5], device=device),
        torch.rand(8, rope, device=device),
        torch.randn(2, 16, 1, rank + rope).to(dtype).to(device),
        slots,
    )
    got = run(triton, case, dtype, interleaved=interleaved)
    plain = run(reference, case, dtype, interleaved=interleaved)
    exact = run(reference, case, torch.float64, interleaved=interleaved)
    for name, *values in zip(("q", "cache"), got, plain, exact, strict=True):
        judge(name, *values)
    untouched = torch.ones(32, dtype=torch.bool, device=device)
    untouched[slots] = False
    before = case[5].flatten(0, 2)
    assert torch.equal(got[1].flatten(0, 2)[untouched], before[untouched])


def test_the_order_of_pairs_is_as_asked(device: str) -> None:
    """One quarter turn: (a, b) -> (-b, a)."""
    angles = torch.tensor([[0.0, 0.0, 1.0, 1.0]], device=device)
    position = torch.zeros(1, dtype=torch.int64, device=device)
    for module in (reference, triton):
        for interleaved, want in ((True, [-2.0, 1.0, -4.0, 3.0]), (False, [-3.0, -4.0, 1.0, 2.0])):
            q = torch.tensor([[[1.0, 2.0, 3.0, 4.0]]], device=device)
            latent = torch.tensor([[2.0, 1.0, 2.0, 3.0, 4.0]], device=device)
            cache = torch.zeros(1, 1, 1, 5, device=device)
            module.latent_norm_rope_write(
                q, latent, torch.ones(1, device=device), 0.0, position, angles, cache, position,
                interleaved=interleaved,
            )  # fmt: skip
            assert q.flatten().tolist() == want
            assert cache.flatten().tolist() == [1.0, *want]
