"""Mixture-of-experts MLP: pairs (token, expert) are sorted by expert, then two grouped GEMMs run.

Grouping tokens by expert instead of padding or dropping them is the idea of MegaBlocks (Gale et al.
2022, arXiv:2211.15841). A tile is up to BLOCK_M sorted pairs of one expert. Every program finds its
expert from the experts' bounds, so the grid depends only on shapes: it has room for the worst
division of pairs among experts, and programs past the last tile end at once.
"""

# ruff: noqa: PLR0917, D403 - a kernel takes pointers and strides; its docstring is its formula


# mypy: disable-error-code="no-untyped-def"

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

_SORT_BLOCK = 4096


class Tiles(NamedTuple):
    """Block sizes: pairs, output columns and summed columns; num_warps and num_stages."""

    m: int
    n: int
    k: int
    warps: int
    stages: int


@triton.jit
def _sort_kernel(experts_ptr, order_ptr, bounds_ptr, pairs, BLOCK: tl.constexpr):
    """order = pair numbers sorted by expert, stable; bounds[e] = pairs of experts below e."""
    expert = tl.program_id(0)
    lane = tl.arange(0, BLOCK)
    below = 0
    for start in range(0, pairs, BLOCK):
        pair = start + lane
        chosen = tl.load(experts_ptr + pair, mask=pair < pairs, other=2**30)
        below += tl.sum((chosen < expert).to(tl.int32), axis=0)
    tl.store(bounds_ptr + expert, below)
    for start in range(0, pairs, BLOCK):
        pair = start + lane
        mine = (tl.load(experts_ptr + pair, mask=pair < pairs, other=2**30) == expert).to(tl.int32)
        tl.store(order_ptr + below + tl.cumsum(mine, axis=0) - 1, pair, mask=mine > 0)
        below += tl.sum(mine, axis=0)
    if expert == tl.num_programs(0) - 1:
        tl.store(bounds_ptr + expert + 1, below)


@triton.jit
def _find_tile(tile, bounds_ptr, num_experts, BLOCK_M: tl.constexpr, BLOCK_E: tl.constexpr):
    """(expert, first pair, end of the expert's pairs) of a tile; past the last tile, the expert is
    not below num_experts.
    """
    lane = tl.arange(0, BLOCK_E)
    low = tl.load(bounds_ptr + lane, mask=lane < num_experts, other=0)
    high = tl.load(bounds_ptr + lane + 1, mask=lane < num_experts, other=0)
    ends = tl.cumsum((high - low + BLOCK_M - 1) // BLOCK_M, axis=0)
    passed = ends <= tile
    expert = tl.sum(passed.to(tl.int32), axis=0)
    skipped = tl.max(tl.where(passed, ends, 0), axis=0)
    known = expert < num_experts
    begin = tl.load(bounds_ptr + expert, mask=known, other=0) + (tile - skipped) * BLOCK_M
    return expert, begin, tl.load(bounds_ptr + expert + 1, mask=known, other=0)


@triton.jit
def _grouped_gemm_kernel(
    x_ptr, weight_ptr, out_ptr, order_ptr, bounds_ptr, shares_ptr,
    x_stride, top_k, num_experts, n_cols, n_sum,
    GATED: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    BLOCK_E: tl.constexpr, EVEN_K: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """GATED: out[sorted] = silu(x[token] gate^T) * (x[token] up^T), weight [E, 2 n_cols, n_sum];
    else: out[pair] = share[pair] * x[sorted] weight^T, weight [E, n_cols, n_sum].
    """
    expert, begin, end = _find_tile(tl.program_id(0), bounds_ptr, num_experts, BLOCK_M, BLOCK_E)
    if expert >= num_experts:
        return
    row = begin + tl.arange(0, BLOCK_M)
    live = row < end
    pair = tl.load(order_ptr + row, mask=live, other=0)
    source = (pair // top_k if GATED else row).to(tl.int64)
    col = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    x_at = x_ptr + source[:, None] * x_stride + k[None, :]
    rows_of_weight = 2 * n_cols if GATED else n_cols
    weight_at = weight_ptr + expert.to(tl.int64) * rows_of_weight * n_sum
    weight_at += col[:, None] * n_sum + k[None, :]
    acc = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    up = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    for start in range(0, n_sum, BLOCK_K):
        x_mask = live[:, None]
        weight_mask = (col < n_cols)[:, None]
        if not EVEN_K:
            x_mask = x_mask & (start + k < n_sum)[None, :]
            weight_mask = weight_mask & (start + k < n_sum)[None, :]
        x = tl.load(x_at + start, mask=x_mask, other=0.0)
        weight = tl.load(weight_at + start, mask=weight_mask, other=0.0)
        acc = tl.dot(x, tl.trans(weight), acc, input_precision=PRECISION)
        if GATED:
            weight = tl.load(weight_at + n_cols * n_sum + start, mask=weight_mask, other=0.0)
            up = tl.dot(x, tl.trans(weight), up, input_precision=PRECISION)
    if GATED:
        acc = acc / (1.0 + tl.exp(-acc)) * up
        target = row
    else:
        acc = acc * tl.load(shares_ptr + pair, mask=live, other=0.0)[:, None]
        target = pair
    at = target.to(tl.int64)[:, None] * n_cols + col[None, :]
    tl.store(out_ptr + at, acc, mask=live[:, None] & (col < n_cols)[None, :])


def choose_tiles(pairs: int, num_experts: int, dtype: torch.dtype) -> tuple[Tiles, Tiles]:
    """Tiles of both products by the mean number of pairs per expert (measured, H200)."""
    if dtype == torch.float32:
        return Tiles(16, 32, 32, 4, 2), Tiles(16, 32, 32, 4, 2)
    mean = pairs / num_experts
    if mean <= 16:
        return Tiles(16, 64, 128, 4, 4), Tiles(16, 64, 128, 4, 4)
    if mean <= 64:
        return Tiles(64, 64, 64, 4, 4), Tiles(64, 128, 64, 8, 3)
    return Tiles(128, 128, 64, 8, 3), Tiles(128, 256, 64, 8, 3)


def _most_tiles(pairs: int, num_experts: int, block: int) -> int:
    """Largest possible number of tiles: each expert with pairs may have one incomplete tile."""
    return (pairs + min(num_experts, pairs) * (block - 1)) // block


def _sorted(experts: Tensor, num_experts: int) -> tuple[Tensor, Tensor]:
    """(order [P] int32, bounds [E + 1] int32) of pairs experts[T,K], P = T K."""
    pairs = experts.numel()
    order = torch.empty(pairs, dtype=torch.int32, device=experts.device)
    bounds = torch.empty(num_experts + 1, dtype=torch.int32, device=experts.device)
    block = min(_SORT_BLOCK, triton.next_power_of_2(pairs))
    _sort_kernel[(num_experts,)](experts, order, bounds, pairs, BLOCK=block, num_warps=4)
    return order, bounds


def moe_mlp(
    x: Tensor,
    gate_up: Tensor,
    down: Tensor,
    experts: Tensor,
    shares: Tensor,
    *,
    tiles: tuple[Tiles, Tiles] | None = None,
) -> Tensor:
    """`tiles` overrides the choice for the two products, for tests and tuning."""
    (tokens, hidden), (num_experts, _, inner), top_k = x.shape, down.shape, experts.shape[1]
    pairs = tokens * top_k
    if pairs == 0:
        return torch.zeros((tokens, hidden), dtype=x.dtype, device=x.device)
    order, bounds = _sorted(experts, num_experts)
    first, second = tiles or choose_tiles(pairs, num_experts, x.dtype)
    activated = torch.empty((pairs, inner), dtype=x.dtype, device=x.device)
    parts = torch.empty((tokens, top_k, hidden), dtype=x.dtype, device=x.device)
    for source, weight, out, blocks in (
        (x, gate_up, activated, first),
        (activated, down, parts, second),
    ):
        columns, summed = out.shape[-1], source.shape[-1]
        grid = (_most_tiles(pairs, num_experts, blocks.m), triton.cdiv(columns, blocks.n))
        _grouped_gemm_kernel[grid](
            source, weight, out, order, bounds, shares,
            source.stride(0), top_k, num_experts, columns, summed,
            GATED=weight is gate_up, BLOCK_M=blocks.m, BLOCK_N=blocks.n, BLOCK_K=blocks.k,
            BLOCK_E=triton.next_power_of_2(num_experts), EVEN_K=summed % blocks.k == 0,
            PRECISION="ieee" if x.dtype == torch.float32 else "tf32",
            num_warps=blocks.warps, num_stages=blocks.stages,
        )  # fmt: skip
    return parts.sum(dim=1)
