"""Cache writes move bits and nothing else."""

# ruff: noqa: PLR0917 - pytest fills the arguments

import pytest
import torch

from yaie_kernels import reference, triton


def cache(
    pages: int,
    page_size: int,
    heads: tuple[int, int],
    head_dim: int,
    dtype: torch.dtype,
    device: str,
) -> torch.Tensor:
    return torch.randn(pages, page_size, heads, head_dim).to(dtype).to(device)


@pytest.mark.parametrize("head_dim", [64, 80, 96, 128])
@pytest.mark.parametrize("kv_heads", [1, 3, 8])
def test_write_kv_from_a_fused_projection(
    kv_heads: int, head_dim: int, dtype: torch.dtype, device: str
) -> None:
    fused = torch.randn(7, 2 + 2 * kv_heads, head_dim).to(dtype).to(device)
    k, v = fused[:, 2 : 2 + kv_heads], fused[:, 2 + kv_heads :]
    slots = torch.tensor([0, 15, 16, 79, 31, 48, 47], device=device)
    got = [cache(5, 16, kv_heads, head_dim, dtype, device) for _ in range(2)]
    want = [tensor.clone() for tensor in got]
    triton.write_kv(k, v, *got, slots)
    reference.write_kv(k, v, *want, slots)
    assert torch.equal(got[0], want[0])
    assert torch.equal(got[1], want[1])
    assert torch.equal(got[0].flatten(0, 1)[slots], k)
    assert torch.equal(got[1].flatten(0, 1)[slots], v)


@pytest.mark.parametrize(("key_size", "value_size"), [(192, 128), (24, 40)])
def test_write_kv_of_two_sizes(
    key_size: int, value_size: int, dtype: torch.dtype, device: str
) -> None:
    k = torch.randn(3, 2, key_size).to(dtype).to(device)
    v = torch.randn(3, 2, value_size).to(dtype).to(device)
    got = [cache(2, 16, 2, size, dtype, device) for size in (key_size, value_size)]
    want = [tensor.clone() for tensor in got]
    slots = torch.tensor([30, 2, 17], device=device)
    triton.write_kv(k, v, *got, slots)
    reference.write_kv(k, v, *want, slots)
    assert torch.equal(got[0], want[0])
    assert torch.equal(got[1], want[1])


@pytest.mark.parametrize("page_size", [1, 16, 32])
def test_copy_pages_copies_whole_pages_and_touches_no_other(
    page_size: int, dtype: torch.dtype, device: str
) -> None:
    before = cache(9, page_size, 3, 80, dtype, device)
    got = before.clone()
    source = torch.tensor([1, 8, 1], device=device)
    target = torch.tensor([0, 3, 4], device=device)
    triton.copy_pages(got, source, target)
    assert torch.equal(got[target], before[source])
    others = [1, 2, 5, 6, 7, 8]
    assert torch.equal(got[others], before[others])


def test_nothing_to_write_is_allowed(device: str) -> None:
    pages = cache(2, 16, 1, 64, torch.float32, device)
    none = torch.empty(0, dtype=torch.int64, device=device)
    before = pages.clone()
    empty = torch.empty(0, 1, 64, device=device)
    triton.write_kv(empty, empty, pages, pages.clone(), none)
    triton.copy_pages(pages, none, none)
    assert torch.equal(pages, before)
