"""Paged decode in C++ and CUDA against dense float64 attention over poisoned caches."""

import pytest
import torch

from yaie_kernels import cuda
from yaie_kernels.limits import LIMITS
from yaie_kernels.testing import PagedCase, judge, paged_case

LENGTHS = [1, 15, 16, 17, 127]  # page edges, and a prime beyond several tiles


def check(
    case: PagedCase,
    window: int | None = None,
    softcap: float | None = None,
    splits: int | None = None,
) -> None:
    scale = 0.3 if softcap else case.q.shape[-1] ** -0.5
    got = cuda.paged_attention(
        *case.args,
        scale=scale,
        max_query_len=1,
        max_seq_len=case.max_seq_len,
        window=window,
        softcap=softcap,
        splits=splits,
    )
    plain = case.dense(case.q.dtype, scale, window, softcap)
    judge("attention", got, plain, case.dense(torch.float64, scale, window, softcap))


@pytest.mark.parametrize("head_dim", [64, 128, 256])
@pytest.mark.parametrize("group", [1, 4, 7, 16, 20])
def test_decode(group: int, head_dim: int, dtype: torch.dtype, device: str) -> None:
    shape = {"q_heads": 2 * group, "kv_heads": 2, "head_dim": head_dim}
    check(paged_case([1] * 5, LENGTHS, dtype=dtype, device=device, **shape))


@pytest.mark.parametrize("splits", [1, 2, 5, 64])
def test_a_sequence_may_be_cut_into_parts_some_of_them_empty(
    splits: int, dtype: torch.dtype, device: str
) -> None:
    shape = {"q_heads": 8, "kv_heads": 2, "head_dim": 128}
    case = paged_case([1] * 4, [1, 16, 131, 700], dtype=dtype, device=device, **shape)
    check(case, splits=splits)


@pytest.mark.parametrize("page_size", [1, 8, 32, 128])
def test_page_size_is_a_parameter(page_size: int, dtype: torch.dtype, device: str) -> None:
    shape = {"q_heads": 4, "kv_heads": 1, "head_dim": 64, "page_size": page_size}
    check(paged_case([1, 1], [65, 40], dtype=dtype, device=device, **shape))


@pytest.mark.parametrize("window", [1, 16, 50, None])
@pytest.mark.parametrize("softcap", [None, 4.0])
@pytest.mark.parametrize("splits", [None, 3])
def test_window_and_softcap(
    window: int | None, softcap: float | None, splits: int | None, device: str
) -> None:
    shape = {"q_heads": 2, "kv_heads": 1, "head_dim": 64}
    check(paged_case([1, 1, 1], [7, 67, 33], device=device, **shape), window, softcap, splits)


@pytest.mark.parametrize("kind", [torch.int32, torch.int64])
def test_tables_are_read_by_line_and_padding_is_left_alone(kind: torch.dtype, device: str) -> None:
    """As a captured step calls it: lines of a larger table, a larger result, empty rows behind."""
    case = paged_case([1] * 3, [5, 40, 17], q_heads=4, kv_heads=2, head_dim=64, device=device)
    q, k, v, tables, lens, starts = case.args
    bounds = {"scale": 0.125, "max_query_len": 1, "max_seq_len": 40}
    want = cuda.paged_attention(*case.args, **bounds)
    lines = torch.zeros((9, tables.shape[1]), dtype=torch.int32, device=device)
    rows = torch.tensor([7, 2, 4, 0, 0], dtype=kind, device=device)
    lines[rows[:3].long()] = tables
    arguments = (
        torch.cat((q, q[:2])),
        k,
        v,
        lines,
        torch.cat((lens, lens.new_zeros(2))),
        torch.cat((starts, starts[-1:], starts[-1:])),
    )
    out = torch.full((5, 4, 64), 9.0, device=device)
    accepts = LIMITS["cuda", "paged_attention"]
    assert accepts(*arguments, **bounds, rows=rows, out=out)
    assert cuda.paged_attention(*arguments, **bounds, rows=rows, out=out) is out
    assert torch.equal(out[:3], want)
    assert (out[3:] == 9.0).all()


def test_an_empty_batch_has_an_empty_result(device: str) -> None:
    case = paged_case([], [], q_heads=4, kv_heads=2, head_dim=64, device=device)
    out = cuda.paged_attention(*case.args, scale=1.0, max_query_len=1, max_seq_len=1)
    assert out.shape == (0, 4, 64)


def test_other_calls_are_beyond_its_limits() -> None:
    accepts = LIMITS["cuda", "paged_attention"]
    shape = {"q_heads": 4, "kv_heads": 1, "head_dim": 64}
    bounds = {"scale": 1.0, "max_seq_len": 9}
    decode = paged_case([1, 1], [5, 9], **shape)
    assert accepts(*decode.args, max_query_len=1, **bounds)
    assert not accepts(*paged_case([1, 2], [5, 9], **shape).args, max_query_len=2, **bounds)
    narrow = paged_case([1], [5], value_dim=32, **shape)
    assert not accepts(*narrow.args, max_query_len=1, **bounds)
    latent = paged_case([1], [5], value_dim=32, latent=True, **shape)
    assert not accepts(*latent.args, max_query_len=1, **bounds)


def test_tables_of_another_batch_are_refused(device: str) -> None:
    case = paged_case([1, 1], [5, 9], q_heads=4, kv_heads=1, head_dim=64, device=device)
    q, k, v, tables, lens, starts = case.args
    with pytest.raises(RuntimeError, match="block_tables: want int32"):
        cuda.paged_attention(
            q, k, v, tables[:1], lens, starts, scale=1.0, max_query_len=1, max_seq_len=9
        )
