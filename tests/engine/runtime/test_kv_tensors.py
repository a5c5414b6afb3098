"""Pools by what layers keep, and pages that move inside the device or to the host and back."""

from pathlib import Path

import pytest
import torch

from engine.models.hand import GREEDY, Hand, load_runner
from engine.models.oracle import reference, save
from yaie.core.batch import Batch, PageCopy, SlotInit
from yaie.layers.interfaces import LayerCache
from yaie.layers.options import TensorOptions
from yaie.runtime.tensors import kv_tensors
from yaie.runtime.tensors.kv_tensors import KVTensors, kv_spec

CPU = TensorOptions(torch.device("cpu"), torch.float32)
MIXED = (LayerCache(2, 4, 4), LayerCache(1, 6, 3, window=8), LayerCache(1, 5, 0))


def filled(layers: tuple[LayerCache, ...] = MIXED, pages: int = 12) -> KVTensors:
    kv = KVTensors(layers, pages, 4, CPU, host_pages=9)
    for pool in kv.pools:
        pool.copy_(torch.randn(pool.shape))
    return kv


def contents(kv: KVTensors, *pages: int) -> list[torch.Tensor]:
    return [pool[list(pages)].clone() for pool in kv.pools]


def test_every_layer_has_the_sizes_it_asks_for() -> None:
    kv = filled()
    assert [tuple(keys.shape) for keys, _ in kv.caches] == [
        (12, 4, 2, 4),
        (12, 4, 1, 6),
        (12, 4, 1, 5),
    ]
    assert [values.shape[-1] for _, values in kv.caches] == [4, 3, 5]
    assert kv.caches[2][0] is kv.caches[2][1]
    assert len(kv.pools) == 5


def test_the_spec_counts_what_the_pools_take() -> None:
    kv, spec = filled(), kv_spec(MIXED, 4, torch.float32)
    assert spec.groups[0].kind == "full"
    assert spec.bytes_per_page * kv.num_pages == sum(pool.nbytes for pool in kv.pools)
    assert spec.bytes_per_page * 9 == kv.host.nbytes
    assert kv_spec(MIXED[2:], 4, torch.float32).groups[0].kind == "latent"


@pytest.mark.parametrize("staging", [1, 2**26])
def test_pages_come_back_from_the_host_as_they_left(
    staging: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In runs of neighbours and scattered, to other pages, in pieces of any size."""
    monkeypatch.setattr(kv_tensors, "STAGING_BYTES", staging)
    kv = filled()
    pages, places, targets = (3, 4, 9, 1), (5, 6, 8, 0), (10, 2, 11, 5)
    before = contents(kv, *pages)
    untouched = contents(kv, 0, 6, 7, 8)
    kv.swap_out([PageCopy(0, *pair) for pair in zip(pages, places, strict=True)])
    for pool in kv.pools:
        pool[list(pages)] = torch.nan
    back = [PageCopy(0, *pair) for pair in zip(places, targets, strict=True)]
    kv.swap_in([back[i] for i in (3, 0, 2, 1)])
    for got, want in zip(contents(kv, *targets), before, strict=True):
        assert torch.equal(got, want)
    for got, want in zip(contents(kv, 0, 6, 7, 8), untouched, strict=True):
        assert torch.equal(got, want)


def test_copies_leave_the_source_alone() -> None:
    kv = filled()
    before = contents(kv, 3, 7)
    kv.copy([PageCopy(0, 3, 1), PageCopy(0, 7, 2)])
    for pool, want in zip(contents(kv, 1, 2) + contents(kv, 3, 7), before * 2, strict=True):
        assert torch.equal(pool, want)


def test_a_swapped_sequence_goes_on_as_transformers_would(tmp_path: Path) -> None:
    """Its pages leave in the step that overwrites them, and come back in another slot."""
    expected = reference("llama-gqa", 16)
    runner = load_runner(save("llama-gqa", tmp_path))
    runner.kv = KVTensors(runner.model.caches, 64, 16, CPU, host_pages=4)
    hand = Hand(runner)
    hand.start(0, expected.prompt)
    hand.step({0: 16})
    hand.decode(0, steps=15)
    pages = hand.pages[0]
    out = tuple(PageCopy(0, page, place) for place, page in enumerate(pages))
    over = tuple(PageCopy(0, 50, page) for page in pages)
    runner.collect(runner.launch(Batch(90, (0,), (), (), over, (), swap_out=out)))
    back = tuple(PageCopy(0, place, 30 + place) for place in range(len(pages)))
    init = SlotInit(5, 5, GREEDY, 0, ((30, 31),))
    runner.collect(runner.launch(Batch(91, (), (init,), (), (), (), swap_in=back)))
    again = Hand(runner)
    again.start(5, expected.prompt + expected.greedy[:16], shared_pages=(30, 31))
    again.computed[5] = 31
    again.step({5: 1})
    assert again.tokens[5][-1] == expected.greedy[16]
