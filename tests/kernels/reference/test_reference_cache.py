"""Cache writes of the reference move bits and nothing else."""

import torch

from yaie_kernels import copy_pages, write_kv


def test_write_kv_stores_rows_at_their_slots_only(dtype: torch.dtype) -> None:
    fused = torch.randn(4, 6, 80).to(dtype)
    k, v = fused[:, 2:4], fused[:, 4:]
    before = torch.randn(2, 3, 16, 2, 80).to(dtype)
    k_cache, v_cache = before.clone()
    slots = torch.tensor([0, 15, 16, 47])
    write_kv(k, v, k_cache, v_cache, slots)
    others = [slot for slot in range(48) if slot not in slots.tolist()]
    for cache, rows, old in ((k_cache, k, before[0]), (v_cache, v, before[1])):
        assert torch.equal(cache.flatten(0, 1)[slots], rows)
        assert torch.equal(cache.flatten(0, 1)[others], old.flatten(0, 1)[others])


def test_copy_pages_copies_whole_pages_and_touches_no_other(dtype: torch.dtype) -> None:
    before = torch.randn(6, 16, 2, 64).to(dtype)
    cache = before.clone()
    copy_pages(cache, torch.tensor([1, 1]), torch.tensor([4, 2]))
    assert torch.equal(cache[[4, 2]], before[[1, 1]])
    assert torch.equal(cache[[0, 1, 3, 5]], before[[0, 1, 3, 5]])
