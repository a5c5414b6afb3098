"""The grouped GEMM kernels against experts computed one by one in float64."""

import pytest
import torch

from yaie_kernels import triton
from yaie_kernels.reference import moe_mlp as reference
from yaie_kernels.testing import MoECase, judge, moe_case
from yaie_kernels.triton.moe import Tiles, _most_tiles, _sorted, choose_tiles, moe_mlp


def check(case: MoECase, tiles: Tiles | None = None) -> None:
    got = moe_mlp(*case.args, tiles=None if tiles is None else (tiles, tiles))
    judge("moe", got, reference(*case.args), case.dense())


@pytest.mark.parametrize("tokens", [1, 7, 40])
def test_each_token_goes_through_its_experts(tokens: int, dtype: torch.dtype, device: str) -> None:
    check(moe_case(tokens, experts=8, top_k=2, dtype=dtype, device=device))


@pytest.mark.parametrize("count", [1, 3, 60], ids=lambda count: f"E{count}")
def test_any_number_of_experts(count: int, device: str) -> None:
    check(moe_case(9, experts=count, top_k=min(count, 5), device=device))


def test_sizes_that_no_block_divides(device: str) -> None:
    check(moe_case(19, experts=4, top_k=2, hidden=88, inner=72, device=device))


@pytest.mark.parametrize("expert", [0, 3, 7])
def test_all_tokens_may_choose_one_expert(expert: int, device: str) -> None:
    case = moe_case(37, experts=8, top_k=1, device=device)
    case.experts.fill_(expert)
    check(case)


@pytest.mark.parametrize("rows", [16, 32, 64])
def test_any_block_size_gives_the_answer(rows: int, device: str) -> None:
    check(moe_case(70, experts=5, top_k=3, device=device), Tiles(rows, 32, 32, 4, 2))


def test_inputs_may_be_strided_rows(device: str) -> None:
    case = moe_case(11, experts=4, top_k=2, device=device)
    wide = torch.randn(11, 3 * case.x.shape[1], device=device)
    wide[:, : case.x.shape[1]] = case.x
    got = triton.moe_mlp(wide[:, : case.x.shape[1]], *case.args[1:])
    judge("moe", got, reference(*case.args), case.dense())


def test_no_tokens_give_no_rows(device: str) -> None:
    case = moe_case(0, experts=4, top_k=2, device=device)
    assert triton.moe_mlp(*case.args).shape == case.x.shape


@pytest.mark.parametrize("pairs", [1, 8, 5000])
def test_sorting_is_stable_and_counts_every_expert(pairs: int, device: str) -> None:
    chosen = torch.randint(0, 6, (pairs, 1), device=device)
    chosen[chosen == 4] = 5  # an expert in the middle has nothing
    order, bounds = _sorted(chosen, 6)
    assert torch.equal(order.long(), chosen.flatten().argsort(stable=True))
    counts = torch.bincount(chosen.flatten(), minlength=6)
    assert bounds.tolist() == [0, *counts.cumsum(0).tolist()]


def test_the_grid_has_room_for_the_worst_split() -> None:
    for pairs, experts, block in ((1, 8, 16), (7, 4, 16), (100, 8, 16), (4096, 128, 64)):
        lonely = min(experts, pairs) - 1  # one pair each, the last expert has the rest
        worst = lonely + -(-(pairs - lonely) // block)
        assert worst <= _most_tiles(pairs, experts, block) <= pairs


def test_blocks_grow_with_the_pairs_of_an_expert() -> None:
    for product in (0, 1):
        rows = [choose_tiles(pairs, 8, torch.float16)[product].m for pairs in (8, 400, 4000)]
        assert rows == [16, 64, 128]


def test_a_captured_graph_follows_new_choices(device: str) -> None:
    """Nothing is read by the host, so a graph replays with whatever the router chose."""
    if device != "cuda":
        pytest.skip("needs CUDA graphs")
    case = moe_case(16, experts=8, top_k=2, dtype=torch.bfloat16, device=device)
    moe_mlp(*case.args)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = moe_mlp(*case.args)
    for seed in range(3):
        other = moe_case(16, experts=8, top_k=2, dtype=torch.bfloat16, device=device, seed=seed)
        case.experts.copy_(other.experts)
        case.x.copy_(other.x)
        graph.replay()
        assert torch.equal(got, moe_mlp(*case.args))
        judge("moe", got, reference(*case.args), case.dense())
