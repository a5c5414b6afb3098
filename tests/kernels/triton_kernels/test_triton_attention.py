"""Paged attention kernels against dense float64 attention over caches with poisoned spare slots."""

import os
from typing import Any

import pytest
import torch

from yaie_kernels import triton
from yaie_kernels.testing import PagedCase, judge, paged_case
from yaie_kernels.triton.attention.decode import Choice, choose, choose_splits, decode
from yaie_kernels.triton.attention.extend import _tiles, extend
from yaie_kernels.triton.attention.layout import Layout, layout

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"  # slow: half of the rare sizes
NAMES = ["q", "k_cache", "v_cache", "block_tables", "seq_lens", "query_start"]
SMALL = {"q_heads": 4, "kv_heads": 2, "head_dim": 64}
LENGTHS = [1, 15, 16, 17, 67 if INTERPRETED else 127]  # page edges, and a prime beyond one tile


def check(case: PagedCase, window: int | None = None, softcap: float | None = None) -> None:
    scale = 0.3 if softcap else case.q.shape[-1] ** -0.5
    got = triton.paged_attention(
        *case.args,
        scale=scale,
        max_query_len=case.max_query_len,
        max_seq_len=case.max_seq_len,
        window=window,
        softcap=softcap,
    )
    plain = case.dense(case.q.dtype, scale, window, softcap)
    judge("attention", got, plain, case.dense(torch.float64, scale, window, softcap))


def attend(case: PagedCase, **change: Any) -> torch.Tensor:
    """The operation with some arguments changed."""
    arguments = dict(zip(NAMES, case.args, strict=True))
    arguments |= {"max_query_len": case.max_query_len, "max_seq_len": case.max_seq_len}
    return triton.paged_attention(**{"scale": 0.125, **arguments, **change})


def padded(values: torch.Tensor, size: int) -> torch.Tensor:
    return torch.cat([values, values.new_zeros(size - len(values))])


def heads_shape(heads: tuple[int, int]) -> dict[str, int]:
    ratio, head_dim = heads
    return {"q_heads": 2 * ratio, "kv_heads": 2, "head_dim": head_dim}


def test_decode(heads: tuple[int, int], dtype: torch.dtype, device: str) -> None:
    shape = heads_shape(heads)
    check(paged_case([1] * 5, LENGTHS, dtype=dtype, device=device, **shape))


@pytest.mark.parametrize("queries", [[1, 1], [3, 20]], ids=["decode", "extend"])
def test_half_precision(queries: list[int], device: str) -> None:
    shape = {"q_heads": 4, "kv_heads": 2, "head_dim": 64, "dtype": torch.float16}
    check(paged_case(queries, [33, 40], device=device, **shape))


def test_extend_mixes_chunks_prefixes_and_decodes(
    heads: tuple[int, int], dtype: torch.dtype, device: str
) -> None:
    shape = heads_shape(heads)
    lens = ([13, 1, 0, 16, 1, 5], [13, 1, 9, 33, 67, 37])
    check(paged_case(*lens, dtype=dtype, device=device, **shape))


@pytest.mark.parametrize("window", [1, 16, 50])
@pytest.mark.parametrize("softcap", [None, 4.0])
@pytest.mark.parametrize("queries", [[1, 1, 1], [1, 20, 7]], ids=["decode", "extend"])
def test_window_and_softcap(
    window: int | None, softcap: float | None, queries: list[int], dtype: torch.dtype, device: str
) -> None:
    shape = {"q_heads": 2, "kv_heads": 1, "head_dim": 64}
    check(paged_case(queries, [7, 67, 33], dtype=dtype, device=device, **shape), window, softcap)


@pytest.mark.parametrize("queries", [[1, 1, 1], [1, 20, 7]], ids=["decode", "extend"])
def test_softcap_alone(queries: list[int], dtype: torch.dtype, device: str) -> None:
    shape = {"q_heads": 2, "kv_heads": 1, "head_dim": 64}
    check(paged_case(queries, [7, 67, 33], dtype=dtype, device=device, **shape), softcap=3.0)


@pytest.mark.parametrize("page_size", [1, 8, 32, 128])
@pytest.mark.parametrize("queries", [[1, 1], [3, 40]], ids=["decode", "extend"])
def test_page_size_is_a_parameter(page_size: int, queries: list[int], device: str) -> None:
    shape = {"q_heads": 4, "kv_heads": 1, "head_dim": 64, "page_size": page_size}
    check(paged_case(queries, [65, 40], device=device, **shape))


WIDE_KEYS = {
    "keys 192, values 128": {"q_heads": 4, "kv_heads": 4, "head_dim": 192, "value_dim": 128},
    "keys 96, values 64": {"q_heads": 4, "kv_heads": 2, "head_dim": 96, "value_dim": 64},
    "keys 40, values 24": {"q_heads": 2, "kv_heads": 1, "head_dim": 40, "value_dim": 24},
    "keys 64, values 96": {"q_heads": 2, "kv_heads": 1, "head_dim": 64, "value_dim": 96},
    "latent 576, values 512": {
        "q_heads": 20,
        "kv_heads": 1,
        "head_dim": 576,
        "value_dim": 512,
        "latent": True,
    },
    "latent 288, values 256": {
        "q_heads": 5,
        "kv_heads": 1,
        "head_dim": 288,
        "value_dim": 256,
        "latent": True,
    },
    "latent 40, values 32": {
        "q_heads": 3,
        "kv_heads": 1,
        "head_dim": 40,
        "value_dim": 32,
        "latent": True,
    },
}


@pytest.mark.parametrize("sizes", list(WIDE_KEYS)[:: 2 if INTERPRETED else 1])
@pytest.mark.parametrize(
    ("queries", "lengths"),
    [([1] * 3, [1, 17, 37]), ([3, 1, 0, 7], [3, 33, 9, 17])],
    ids=["decode", "extend"],
)
def test_values_may_be_of_another_size_than_keys(
    sizes: str, queries: list[int], lengths: list[int], dtype: torch.dtype, device: str
) -> None:
    if (device, dtype, sizes) == ("cuda", torch.float32, "latent 576, values 512"):
        pytest.skip("sums 576 products in one chain: 3.6 times the error of torch's blocked sums")
    check(paged_case(queries, lengths, dtype=dtype, device=device, **WIDE_KEYS[sizes]))


CUTS = {
    "one program": {},
    "3 splits": {"splits": 3, "wanted": 3},
    "7 splits": {"splits": 7, "wanted": 7},
    "1 balanced": {"programs": 1},
    "2 balanced": {"programs": 2},
    "7 balanced": {"programs": 7},
    "40 balanced": {"programs": 40},
}


@pytest.mark.parametrize("cut", [key for key in CUTS if key[0] in "o3"])
@pytest.mark.parametrize("rows", [16, 64])
def test_the_heads_of_a_latent_cache_may_be_many_programs(cut: str, rows: int, device: str) -> None:
    shape = WIDE_KEYS["latent 288, values 256"] | {"q_heads": 40}
    case = paged_case([1] * 2, [5, 67], device=device, **shape)
    choice = Choice(rows, (16, 4, 1), **CUTS[cut])
    options: dict[str, Any] = {"scale": 0.06, "window": None, "softcap": None}
    got = decode(*case.args, **options, max_seq_len=67, choice=choice)
    plain = case.dense(torch.float32, 0.06, None, None)
    judge("decode", got, plain, case.dense(torch.float64, 0.06, None, None))


def test_wide_keys_are_a_full_block_and_a_tail() -> None:
    """Sizes up to 128 are one padded block, as they always were."""

    def blocks(key_size: int, value_size: int, *, latent: bool = False) -> Layout:
        keys = torch.zeros(1, 1, 1, key_size)
        return layout(keys, keys[..., :value_size] if latent else torch.zeros(1, 1, 1, value_size))

    assert blocks(96, 96) == Layout(128, 0, 128, "like keys")
    assert blocks(256, 256) == Layout(256, 0, 256, "like keys")
    assert blocks(192, 128) == Layout(128, 64, 128, "own")
    assert blocks(576, 512, latent=True) == Layout(512, 64, 512, "columns")
    assert blocks(40, 32, latent=True) == Layout(64, 0, 32, "own")


@pytest.mark.parametrize("window", [None, 70])
@pytest.mark.parametrize("cut", CUTS)
def test_any_cut_gives_the_answer(
    cut: str, window: int | None, dtype: torch.dtype, device: str
) -> None:
    """Short sequences leave splits empty; a balanced program has parts of many, or nothing."""
    shape = {"q_heads": 2, "kv_heads": 1, "head_dim": 64}
    case = paged_case([1] * 5, [1, 64, 65, 211, 3], dtype=dtype, device=device, **shape)
    choice = Choice(16, (16, 4, 1), **CUTS[cut])
    options: dict[str, Any] = {"scale": 0.125, "window": window, "softcap": None}
    got = decode(*case.args, **options, max_seq_len=211, choice=choice)
    plain = case.dense(dtype, 0.125, window, None)
    judge("decode", got, plain, case.dense(torch.float64, 0.125, window, None))


def test_splits_fill_the_gpu_and_follow_the_length_bound() -> None:
    assert choose_splits(8, 200, 264) == (2, 2)
    assert choose_splits(8, 40960, 264) == (33, 33)
    assert choose_splits(512, 512, 264) == (1, 1)
    assert choose_splits(512, 40960, 264) == (20, 1), "one long sequence must not be one program"


def test_splits_of_a_latent_cache_fit_the_gpu_at_once() -> None:
    """One program more than fit would cost another round of all."""
    for rows in (64, 32, 2, 500):
        splits, wanted = choose_splits(rows, 2048, 264, 264)
        assert splits == wanted
        assert splits == 1 or rows * splits <= 264
        assert splits == 32 or rows * (splits + 1) > 264


def test_large_batches_are_balanced_whatever_the_bound() -> None:
    shape, device = Layout(128, 0, 128, "like keys"), torch.device("cpu")

    def programs(batch: int, bound: int) -> int:
        return choose(batch, (8, 2), bound, shape, torch.bfloat16, device).programs

    assert programs(1, 40960) == programs(3, 40960) == 0
    assert programs(16, 40960) > 0
    assert programs(256, 500) == programs(256, 40960) > 0
    assert programs(512, 40960) == 0, "so many rows balance themselves"


def test_a_decode_step_may_have_more_rows_than_one_search(device: str) -> None:
    lengths = [1 + index % 40 for index in range(300)]
    case = paged_case([1] * 300, lengths, device=device, q_heads=1, kv_heads=1, head_dim=16)
    options: dict[str, Any] = {"scale": 0.25, "window": None, "softcap": None, "max_seq_len": 40}
    got = decode(*case.args, **options, choice=Choice(16, (32, 4, 1), programs=5))
    plain = case.dense(torch.float32, 0.25, None, None)
    judge("decode", got, plain, case.dense(torch.float64, 0.25, None, None))


@pytest.mark.parametrize("bound", [67, 1500])
def test_the_length_bound_may_be_far_from_the_truth(bound: int, device: str) -> None:
    """A captured graph knows a bucket, not the lengths."""
    shape = {"q_heads": 2, "kv_heads": 1, "head_dim": 64}
    case = paged_case([1] * 2, [1, 67], device=device, **shape)
    got = triton.paged_attention(*case.args, scale=0.125, max_query_len=1, max_seq_len=bound)
    plain = case.dense(torch.float32, 0.125, None, None)
    judge("decode", got, plain, case.dense(torch.float64, 0.125, None, None))


def test_an_empty_batch_gives_no_rows(device: str) -> None:
    shape = {"q_heads": 2, "kv_heads": 1, "head_dim": 64}
    decode_case = paged_case([], [], device=device, **shape)
    check(decode_case)
    check(paged_case([0, 0], [5, 40], device=device, **shape))


def test_padded_rows_of_a_captured_batch_read_the_scratch_page_only(device: str) -> None:
    """A padded row has length 1 and a table of zeros, whatever page 0 holds."""
    shape = {"q_heads": 2, "kv_heads": 1, "head_dim": 64}
    case = paged_case([1, 1], [40, 1], device=device, **shape)
    case.block_tables[1] = 0
    case.k_cache[0], case.v_cache[0] = 1.0, 2.0
    got = triton.paged_attention(*case.args, scale=0.1, max_query_len=1, max_seq_len=512)
    assert torch.equal(got[1], torch.full_like(got[1], 2.0))
    judge("row 0", got[:1], case.dense(torch.float32, 0.1, None, None)[:1],
          case.dense(torch.float64, 0.1, None, None)[:1])  # fmt: skip


@pytest.mark.parametrize("rows_dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("queries", [[1, 1, 1], [3, 1, 20]], ids=["decode", "extend"])
def test_tables_are_read_in_place(queries: list[int], rows_dtype: torch.dtype, device: str) -> None:
    """Row b's table is line rows[b] of a larger one whose other lines lie."""
    case = paged_case(queries, [33, 7, 40], device=device, **SMALL)
    lines = torch.full((6, case.block_tables.shape[1] + 3), 2**30, dtype=torch.int32, device=device)
    rows = torch.tensor([4, 0, 3], dtype=rows_dtype, device=device)
    lines[rows.long(), : case.block_tables.shape[1]] = case.block_tables
    got = attend(case, block_tables=lines, rows=rows)
    assert torch.equal(got, attend(case))


@pytest.mark.parametrize("queries", [[1, 1, 1], [3, 1, 20]], ids=["decode", "extend"])
def test_the_answer_may_be_written_into_a_larger_tensor(queries: list[int], device: str) -> None:
    case = paged_case(queries, [33, 7, 40], device=device, **SMALL)
    tokens = sum(queries)
    large = torch.full((tokens + 5, 7, 64), 9.0, device=device)
    out = large[2 : 2 + tokens, 1:5]
    assert attend(case, out=out) is out
    assert torch.equal(out, attend(case))
    out.fill_(9.0)
    assert (large == 9.0).all()


@pytest.mark.parametrize("cut", CUTS)
def test_padded_rows_of_a_decode_step_are_neither_read_nor_written(cut: str, device: str) -> None:
    """Rows of length 0 and rows without a query; their tables lead nowhere."""
    case = paged_case([1, 1, 1], [33, 70, 40], device=device, **SMALL)
    options: dict[str, Any] = {"scale": 0.125, "window": None, "softcap": None, "max_seq_len": 70}
    options["choice"] = Choice(16, (32, 4, 1), **CUTS[cut])
    alone = decode(*case.args, **options)
    q = torch.cat([case.q[:2], case.q.new_full((1, 4, 64), torch.nan), case.q[2:]])
    lens = padded(case.seq_lens, 5)
    lens[2:] = torch.tensor([0, 40, 50])
    tables = torch.full((5, case.block_tables.shape[1]), 2**30, dtype=torch.int32, device=device)
    tables[[0, 1, 3]] = case.block_tables
    starts = torch.tensor([0, 1, 2, 3, 4, 4], dtype=torch.int32, device=device)
    out = torch.full((6, 4, 64), 9.0, device=device)
    decode(q, *case.args[1:3], tables, lens, starts, **options, out=out)
    assert torch.equal(out[[0, 1, 3]], alone)
    assert (out[[2, 4, 5]] == 9.0).all()


@pytest.mark.parametrize("spare", [0, 1, 37])
def test_padding_of_an_extend_step_changes_no_bit(spare: int, device: str) -> None:
    """A captured graph has spare tokens, and rows without queries at the end or between."""
    case = paged_case([5, 17, 1, 3], [9, 17, 40, 37], device=device, **SMALL)
    tiles = (16, 32, 4, 1)
    alone = extend(*case.args, scale=0.125, window=None, softcap=None, tiles=tiles)
    q = torch.cat([case.q, case.q.new_full((spare, 4, 64), torch.nan)])
    order = [0, 1, 4, 2, 3]
    tables = torch.full((8, case.block_tables.shape[1]), 2**30, dtype=torch.int32, device=device)
    tables[[0, 1, 3, 4]] = case.block_tables
    lens = padded(case.seq_lens, 5)[[*order, 4, 4, 4]]
    starts = torch.tensor([0, 5, 22, 22, 23, 26, 26, 26, 26], dtype=torch.int32, device=device)
    out = torch.full((len(q), 4, 64), 9.0, device=device)
    extend(
        q, *case.args[1:3], tables, lens, starts,
        scale=0.125, window=None, softcap=None, out=out, tiles=tiles,
    )  # fmt: skip
    assert torch.equal(out[:26], alone)
    assert (out[26:] == 9.0).all()


def test_an_extend_step_may_have_more_rows_than_one_search(device: str) -> None:
    queries = [index % 3 for index in range(300)]
    lengths = [max(count, 1) + index % 5 for index, count in enumerate(queries)]
    check(paged_case(queries, lengths, device=device, q_heads=1, kv_heads=1, head_dim=16))


def test_tiles_depend_on_the_size_class_of_the_step_alone() -> None:
    shape = Layout(128, 0, 128, "like keys")
    for low, high in ((5, 8), (9, 16), (33, 64), (300, 512)):
        assert _tiles(low, 2, shape, torch.float16) == _tiles(high, 2, shape, torch.float16)


@pytest.mark.parametrize("queries", [[1, 1], [3, 20]], ids=["decode", "extend"])
def test_wide_offsets_give_the_answer(
    queries: list[int], device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Caches past 2**31 elements use 64-bit offsets; a small one is made to."""
    for module in ("balanced", "decode", "extend"):
        monkeypatch.setattr(
            f"yaie_kernels.triton.attention.{module}.needs_wide", lambda cache: True
        )
    shape = {"q_heads": 4, "kv_heads": 2, "head_dim": 64}
    check(paged_case(queries, [33, 40], device=device, **shape))


def test_a_cache_past_32_bits_is_read_where_it_should_be(device: str) -> None:
    if device != "cuda":
        pytest.skip("needs 9 GB of device memory")
    pages = 2**31 // (16 * 2 * 64) + 100
    cache = torch.zeros(pages, 16, 2, 64, dtype=torch.float16, device=device)
    cache[pages - 1] = 3.0
    cache[pages - 1 - 2**20] = 5.0
    q = torch.randn(2, 4, 64, dtype=torch.float16, device=device)
    tables = torch.tensor([[pages - 1]], dtype=torch.int32, device=device)
    for queries in (1, 2):
        got = triton.paged_attention(
            q[:queries],
            cache,
            cache,
            tables,
            torch.tensor([16], dtype=torch.int32, device=device),
            torch.tensor([0, queries], dtype=torch.int32, device=device),
            scale=0.1,
            max_query_len=queries,
            max_seq_len=16,
        )
        assert (got == 3.0).all()
