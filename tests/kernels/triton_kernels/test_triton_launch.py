"""Kernels that start early still wait for their inputs."""

from typing import Protocol

import pytest
import torch

from yaie_kernels import triton
from yaie_kernels.testing import paged_case

HIDDEN, INNER, LAYERS = 1024, 1536, 24
HEADS, KV_HEADS, HEAD = 16, 8, 128


class Chain(Protocol):
    def __call__(self, *, between: bool) -> torch.Tensor:
        """Run kernels one after another; `between`: wait for each before the next is launched."""


def assert_replays_agree(chain: Chain, *, times: int) -> None:
    """With the chain whose every kernel has ended before the next one begins."""
    want = chain(between=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = chain(between=False)
    for _ in range(times):
        got.zero_()
        graph.replay()
        assert torch.equal(got, want)


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [1, 2, 4, 16, 33, 100, 256])
def test_a_captured_chain_gives_what_its_kernels_give_alone(rows: int, device: str) -> None:
    """Each projection reads weights before its input is there; buffers are reused all the time."""
    if device != "cuda":
        pytest.skip("kernels overlap on a GPU only")

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, dtype=torch.bfloat16, device="cuda") / shape[-1] ** 0.5

    ups = [normal(2 * INNER, HIDDEN) * 4 for _ in range(LAYERS)]
    downs = [normal(HIDDEN, INNER) * 4 for _ in range(LAYERS)]
    norm = torch.ones(HIDDEN, dtype=torch.bfloat16, device="cuda")
    first = normal(rows, HIDDEN)

    def run(*, between: bool) -> torch.Tensor:
        x, residual = first, None
        for up, down in zip(ups, downs, strict=True):
            inner, residual = triton.norm_linear(x, residual, norm, 1e-6, 0.0, up, gate="silu")
            if between:
                torch.cuda.synchronize()
            x = triton.linear(inner, down)
            if between:
                torch.cuda.synchronize()
        return triton.add_rms_norm(x, residual, norm, 1e-6)[0]

    assert_replays_agree(run, times=50)


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [1, 3, 20, 80, 300])
def test_a_captured_chain_with_attention_gives_what_its_kernels_give_alone(
    rows: int, device: str
) -> None:
    """Split rows and balanced ones, whose second kernels start early, too; parts are reused."""
    if device != "cuda":
        pytest.skip("kernels overlap on a GPU only")
    lengths = [1 + 37 * row % 900 for row in range(rows)]
    case = paged_case(
        [1] * rows, lengths, dtype=torch.bfloat16, device=device,
        q_heads=HEADS, kv_heads=KV_HEADS, head_dim=HEAD,
    )  # fmt: skip
    weights = [
        torch.randn(HEADS * HEAD, HEADS * HEAD, dtype=torch.bfloat16, device=device) / 40
        for _ in range(LAYERS)
    ]
    norm = torch.ones(HEADS * HEAD, dtype=torch.bfloat16, device=device)

    def run(*, between: bool) -> torch.Tensor:
        x = case.q.flatten(1)
        for weight in weights:
            x = triton.rms_norm(triton.linear(x, weight), norm, 1e-6)
            if between:
                torch.cuda.synchronize()
            x = triton.paged_attention(
                x.view(rows, HEADS, HEAD), *case.args[1:],
                scale=HEAD**-0.5, max_query_len=1, max_seq_len=2048,
            ).flatten(1)  # fmt: skip
            if between:
                torch.cuda.synchronize()
        return x

    assert_replays_agree(run, times=20)
