"""The Hopper kernel against dense float64 attention; without such a GPU, that it is not chosen."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from yaie_kernels.testing import PagedCase, judge, paged_case
from yaie_kernels.triton.attention import hopper

ON_HOPPER = torch.cuda.is_available() and torch.cuda.get_device_capability()[0] == 9
needs_hopper = pytest.mark.skipif(not ON_HOPPER, reason="needs a Hopper GPU")
HALVES = [torch.bfloat16, torch.float16]
STEPS = [
    ([13], [13]),
    ([1, 200, 0, 77], [40, 200, 9, 333]),  # a decode, a whole prompt, padding, a later chunk
    ([513], [1300]),  # a prime; several blocks and tiles
    ([64, 128], [64, 128]),
]


def attend(case: PagedCase, window: int | None = None, softcap: float | None = None) -> Tensor:
    out = torch.full_like(case.q, 9.0, memory_format=torch.contiguous_format)
    scale = 0.3 if softcap else case.q.shape[-1] ** -0.5
    options = {"scale": scale, "window": window, "softcap": softcap, "rows": None}
    hopper.extend_hopper(*case.args, out, **cast(Any, options))
    return out


@needs_hopper
@pytest.mark.parametrize(("window", "softcap"), [(None, None), (50, None), (300, 4.0), (None, 3.0)])
@pytest.mark.parametrize("q_and_kv", [(4, 2), (2, 2), (16, 1)], ids=["G2", "G1", "G16"])
@pytest.mark.parametrize("head_dim", [64, 128, 256])
@pytest.mark.parametrize("half", HALVES, ids=["bfloat16", "float16"])
def test_it_is_dense_attention(
    half: torch.dtype,
    head_dim: int,
    q_and_kv: tuple[int, int],
    window: int | None,
    softcap: float | None,
) -> None:
    for queries, lengths in STEPS:
        shape = {"q_heads": q_and_kv[0], "kv_heads": q_and_kv[1], "head_dim": head_dim}
        case = paged_case(queries, lengths, dtype=half, device="cuda", **shape)
        scale = 0.3 if softcap else head_dim**-0.5
        plain = case.dense(half, scale, window, softcap)
        exact = case.dense(torch.float64, scale, window, softcap)
        judge(f"{queries} of {lengths}", attend(case, window, softcap), plain, exact)


@needs_hopper
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("page_size", [8, 32, 64, 128])
def test_page_size_is_a_parameter(page_size: int, head_dim: int) -> None:
    shape = {"q_heads": 4, "kv_heads": 2, "head_dim": head_dim, "page_size": page_size}
    case = paged_case([40, 150], [300, 150], dtype=torch.bfloat16, device="cuda", **shape)
    scale = head_dim**-0.5
    judge("attention", attend(case), case.dense(torch.bfloat16, scale, None, None),
          case.dense(torch.float64, scale, None, None))  # fmt: skip


@needs_hopper
def test_spare_tokens_and_rows_change_no_bit_and_are_not_written() -> None:
    shape = {"q_heads": 4, "kv_heads": 2, "head_dim": 128}
    case = paged_case([5, 117], [9, 300], dtype=torch.bfloat16, device="cuda", **shape)
    alone = attend(case)
    q = torch.cat([case.q, case.q.new_full((300, 4, 128), torch.nan)])
    tables = torch.full((6, case.block_tables.shape[1]), 2**30, dtype=torch.int32, device="cuda")
    tables[[3, 1]] = case.block_tables
    rows = torch.tensor([3, 5, 1, 0], device="cuda")
    lens = torch.tensor([9, 0, 300, 7], dtype=torch.int32, device="cuda")
    starts = torch.tensor([0, 5, 5, 122, 122], dtype=torch.int32, device="cuda")
    out = torch.full_like(q, 9.0)
    hopper.extend_hopper(
        q, *case.args[1:3], tables, lens, starts, out,
        scale=128**-0.5, window=None, softcap=None, rows=rows,
    )  # fmt: skip
    assert torch.equal(out[:122], alone)
    assert (out[122:] == 9.0).all()


@needs_hopper
@pytest.mark.parametrize("window", [None, 100])
@pytest.mark.parametrize("head_dim", [64, 128, 256])
def test_claiming_blocks_changes_no_bit(
    head_dim: int, window: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = {"q_heads": 8, "kv_heads": 2, "head_dim": head_dim}
    lengths = [900, 1, 333, 700], [2000, 50, 333, 900]
    case = paged_case(*lengths, dtype=torch.bfloat16, device="cuda", **shape)
    monkeypatch.setattr(hopper, "multiprocessors", lambda device: 10_000)
    alone = attend(case, window)
    monkeypatch.setattr(hopper, "multiprocessors", lambda device: 7)
    graph, out = torch.cuda.CUDAGraph(), attend(case, window)
    assert torch.equal(out, alone)
    with torch.cuda.graph(graph):
        out = attend(case, window)
    for _ in range(3):
        out.zero_()
        graph.replay()
        assert torch.equal(out, alone)


def test_only_sizes_that_suit_are_given_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hopper, "is_hopper", lambda device: True)

    def suits(key_size: int, page_size: int = 16, dtype: torch.dtype = torch.float16) -> bool:
        cache = torch.zeros(2, page_size, 2, key_size)
        q = SimpleNamespace(dtype=dtype, device=torch.device("cuda"))
        return hopper.suits(cast(Tensor, q), cache, cache.clone())

    assert suits(128)
    assert suits(64, page_size=128)
    assert not suits(96), "no power of two"
    assert not suits(128, page_size=4), "a swizzled block has eight rows"
    assert not suits(256, page_size=128), "a page is more than a tile"
    assert not suits(128, page_size=24), "tiles hold whole pages"
    assert not suits(128, dtype=torch.float32)
