"""Copies of whole pages within a cache and between caches: any ids, nothing else is touched."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from yaie_kernels import cuda

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
PAGES = 9
SHAPES = st.sampled_from([(16, 8, 128), (3, 1, 5), (1, 1, 1)])  # 16-byte units, and others
DTYPES = st.sampled_from([torch.float32, torch.bfloat16, torch.uint8])


def cache(shape: tuple[int, ...], dtype: torch.dtype, seed: int, *, host: bool) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randint(0, 250, (PAGES, *shape), generator=generator).to(dtype)
    if host:
        return values.pin_memory() if ON_GPU else values
    return values.to(DEVICE)


def ids(pages: list[int]) -> torch.Tensor:
    return torch.tensor(pages, dtype=torch.int64, device=DEVICE)


@given(order=st.permutations(range(PAGES)), count=st.integers(0, 4), shape=SHAPES, dtype=DTYPES)
@settings(max_examples=50, deadline=None)
def test_copy_pages_writes_the_targets_and_nothing_else(
    order: list[int], count: int, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    source, target = ids(order[:count]), ids(order[4 : 4 + count])
    got = cache(shape, dtype, 0, host=False)
    want = got.clone()
    want[target] = want[source]
    cuda.copy_pages(got, source, target)
    assert torch.equal(got, want)


@given(
    source=st.lists(st.integers(0, PAGES - 1), max_size=PAGES),
    order=st.permutations(range(PAGES)),
    shape=SHAPES,
    dtype=DTYPES,
    sides=st.sampled_from([(False, True), (True, False), (False, False)]),
)
@settings(max_examples=50, deadline=None)
def test_swap_pages_copies_between_host_and_device(
    source: list[int],
    order: list[int],
    shape: tuple[int, ...],
    dtype: torch.dtype,
    sides: tuple[bool, bool],
) -> None:
    target = order[: len(source)]
    here, there = (cache(shape, dtype, seed, host=host) for seed, host in enumerate(sides))
    want = there.cpu().clone()
    want[target] = here.cpu()[source]
    cuda.swap_pages(here, there, ids(source), ids(target))
    if ON_GPU:
        torch.cuda.synchronize()
    assert torch.equal(there.cpu(), want)


def test_a_page_that_goes_out_and_comes_back_is_the_same() -> None:
    device = cache((16, 2, 64), torch.float16, 0, host=False)
    host = cache((16, 2, 64), torch.float16, 1, host=True)
    before = device.clone()
    cuda.swap_pages(device, host, ids([2, 7]), ids([5, 0]))
    device.zero_()
    cuda.swap_pages(host, device, ids([5, 0]), ids([2, 7]))
    assert torch.equal(device[[2, 7]], before[[2, 7]])
    assert device[[0, 1, 3, 4, 5, 6, 8]].count_nonzero() == 0


def test_caches_of_other_blocks_are_refused() -> None:
    with pytest.raises(RuntimeError, match="blocks of the same dtype and shape"):
        cuda.swap_pages(
            cache((16, 2, 64), torch.float16, 0, host=False),
            cache((16, 2, 32), torch.float16, 0, host=False),
            ids([0]),
            ids([0]),
        )


@pytest.mark.skipif(not ON_GPU, reason="every CPU tensor is host memory")
def test_pageable_host_memory_is_refused() -> None:
    with pytest.raises(RuntimeError, match="must be pinned memory"):
        cuda.swap_pages(torch.ones(4, 8), torch.ones(4, 8, device="cuda"), ids([0]), ids([0]))
