"""The CPU attention against dense float64 attention over caches with poisoned spare slots."""

import pytest
import torch

from yaie_kernels import paged_attention
from yaie_kernels.reference.attention import attend, plan
from yaie_kernels.testing import PagedCase, judge, paged_case

LENGTHS = [1, 15, 16, 17, 211]


def run(
    case: PagedCase, window: int | None = None, softcap: float | None = None, scale: float = 0.2
) -> torch.Tensor:
    return paged_attention(
        *case.args,
        scale=scale,
        max_query_len=case.max_query_len,
        max_seq_len=case.max_seq_len,
        window=window,
        softcap=softcap,
    )


def check(case: PagedCase, window: int | None = None, softcap: float | None = None) -> None:
    plain = case.dense(case.q.dtype, 0.2, window, softcap)
    exact = case.dense(torch.float64, 0.2, window, softcap)
    judge("attention", run(case, window, softcap), plain, exact)


@pytest.mark.parametrize("ratio", [1, 2, 4, 8])
@pytest.mark.parametrize("head_dim", [64, 80, 96, 128])
@pytest.mark.parametrize(
    ("queries", "lengths"),
    [([1] * 5, LENGTHS), ([13, 1, 0, 16, 1, 5], [13, 1, 9, 33, 67, 101])],
    ids=["decode", "mixed"],
)
def test_it_is_dense_attention(
    ratio: int, head_dim: int, queries: list[int], lengths: list[int], dtype: torch.dtype
) -> None:
    shape = {"q_heads": 2 * ratio, "kv_heads": 2, "head_dim": head_dim}
    check(paged_case(queries, lengths, dtype=dtype, **shape))


@pytest.mark.parametrize(
    "sizes",
    [
        {"q_heads": 4, "kv_heads": 4, "head_dim": 192, "value_dim": 128},
        {"q_heads": 4, "kv_heads": 2, "head_dim": 40, "value_dim": 56},
        {"q_heads": 16, "kv_heads": 1, "head_dim": 576, "value_dim": 512, "latent": True},
    ],
    ids=["192/128", "40/56", "latent"],
)
@pytest.mark.parametrize("softcap", [None, 3.0])
@pytest.mark.parametrize(
    ("queries", "lengths"),
    [([1] * 5, LENGTHS), ([13, 1, 0, 16, 1, 5], [13, 1, 9, 33, 67, 101])],
    ids=["decode", "mixed"],
)
def test_values_may_be_of_another_size_than_keys(
    sizes: dict[str, int], softcap: float | None, queries: list[int], lengths: list[int]
) -> None:
    check(paged_case(queries, lengths, **sizes), softcap=softcap)


@pytest.mark.parametrize("window", [None, 1, 16, 50])
@pytest.mark.parametrize("softcap", [None, 3.0])
@pytest.mark.parametrize("queries", [[1, 1, 1], [1, 20, 7]], ids=["decode", "mixed"])
def test_window_and_softcap(window: int | None, softcap: float | None, queries: list[int]) -> None:
    shape = {"q_heads": 4, "kv_heads": 2, "head_dim": 64}
    check(paged_case(queries, [7, 90, 33], **shape), window, softcap)


@pytest.mark.parametrize("page_size", [1, 8, 32])
def test_page_size_is_a_parameter(page_size: int) -> None:
    shape = {"q_heads": 4, "kv_heads": 1, "head_dim": 64, "page_size": page_size}
    check(paged_case([1, 1], [65, 40], **shape))
    check(paged_case([3, 40], [65, 40], **shape))


def test_chunks_of_a_prompt_give_what_the_whole_prompt_gives() -> None:
    shape = {"q_heads": 4, "kv_heads": 2, "head_dim": 64, "dtype": torch.float64}
    case = paged_case([50], [50], **shape)
    whole = run(case)
    for begin, end in ((0, 17), (17, 33), (33, 49), (49, 50)):
        part = paged_attention(
            case.q[begin:end],
            *case.args[1:4],
            torch.tensor([end], dtype=torch.int32),
            torch.tensor([0, end - begin], dtype=torch.int32),
            scale=0.2,
            max_query_len=end - begin,
            max_seq_len=end,
        )
        torch.testing.assert_close(part, whole[begin:end])


@pytest.mark.parametrize("kept", [[0, 1], [1, 2], [2]])
def test_a_call_may_name_some_of_the_queries(kept: list[int]) -> None:
    """The others' results mean nothing; those of the named rows are what they always are."""
    shape = {"q_heads": 2, "kv_heads": 1, "head_dim": 64}
    case = paged_case([1, 1, 1], [5, 40, 20], **shape)
    rows = torch.tensor(kept)
    starts = torch.tensor([*kept, kept[-1] + 1], dtype=torch.int32)
    got = paged_attention(
        *case.args[:3], case.block_tables[rows], case.seq_lens[rows], starts,
        scale=0.2, max_query_len=1, max_seq_len=40,
    )  # fmt: skip
    assert got.shape == case.q.shape
    torch.testing.assert_close(got[rows], run(case)[rows])


@pytest.mark.parametrize("queries", [[1, 1, 1], [3, 1, 20]], ids=["decode", "mixed"])
def test_tables_are_read_in_place_and_the_answer_written_where_it_is_wanted(
    queries: list[int],
) -> None:
    shape = {"q_heads": 4, "kv_heads": 2, "head_dim": 64}
    case = paged_case(queries, [33, 7, 40], **shape)
    rows = torch.tensor([4, 0, 3])
    lines = torch.full((6, case.block_tables.shape[1]), 2**30, dtype=torch.int32)
    lines[rows] = case.block_tables
    large = torch.full((sum(queries) + 2, 7, 64), 9.0)
    out = large[1:-1, 1:5]
    got = paged_attention(
        *case.args[:3], lines, *case.args[4:], scale=0.2, max_query_len=case.max_query_len,
        max_seq_len=40, rows=rows, out=out,
    )  # fmt: skip
    assert got is out
    torch.testing.assert_close(out, run(case))
    out.fill_(9.0)
    assert (large == 9.0).all()


def test_rows_of_length_zero_are_neither_read_nor_written() -> None:
    case = paged_case([1, 1, 1], [33, 7, 40], q_heads=4, kv_heads=2, head_dim=64)
    case.seq_lens[1] = 0
    case.block_tables[1] = 2**30
    out = torch.full((3, 4, 64), 9.0)
    paged_attention(*case.args, scale=0.2, max_query_len=1, max_seq_len=40, out=out)
    assert (out[1] == 9.0).all()
    exact = case.dense(torch.float64, 0.2, None, None)
    judge("attention", out[::2], case.dense(torch.float32, 0.2, None, None)[::2], exact[::2])


def test_an_empty_batch_gives_no_rows() -> None:
    shape = {"q_heads": 2, "kv_heads": 1, "head_dim": 64}
    assert run(paged_case([], [], **shape)).shape == (0, 2, 64)
    assert run(paged_case([0, 0], [5, 40], **shape)).shape == (0, 2, 64)


def test_rows_of_unlike_lengths_are_computed_in_groups() -> None:
    """Else one long sequence would make every short one gather as much."""
    lengths = [3000, 30, 2900, 25, 1]
    assert plan.groups(lengths) == [[0, 2], [1, 3], [4]]
    assert plan.groups([400] * 16) == [list(range(16))]
    shape = {"q_heads": 2, "kv_heads": 1, "head_dim": 64}
    check(paged_case([1] * 5, lengths, **shape))


def test_workspaces_are_reused_between_calls() -> None:
    shape = {"q_heads": 2, "kv_heads": 1, "head_dim": 64}
    case = paged_case([1] * 3, [50, 40, 30], **shape)
    first = run(case)
    buffers = {key: tensor.data_ptr() for key, tensor in attend._workspace.buffers.items()}
    second = run(case)
    assert torch.equal(first, second)
    after = {key: tensor.data_ptr() for key, tensor in attend._workspace.buffers.items()}
    assert buffers == after


def test_a_plan_is_reused_only_for_the_same_contents() -> None:
    """Tensors that a runner fills in place look the same by identity."""
    shape = {"q_heads": 2, "kv_heads": 1, "head_dim": 64}
    case = paged_case([1] * 2, [50, 40], **shape)
    first = run(case)
    plans = dict(plan._last.plans)
    assert torch.equal(run(case), first)
    assert all(plan._last.plans[key] is value for key, value in plans.items())
    case.block_tables.copy_(case.block_tables.flip(0))
    case.seq_lens.copy_(case.seq_lens.flip(0))
    check(case)
    case.seq_lens[0] -= 1
    check(case)
    case.block_tables[1, 0] = case.block_tables[0, 0]
    check(case)
    check(case, window=8)
    check(case)
