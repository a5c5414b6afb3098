"""The logits at which top-k and top-p cut off each row, found without sorting.

A few tokens suffice for most rows. The largest logit of each block of tokens gives a lower bound of
the cut-off (the delegates of Dr. Top-k, Gaihre et al. 2021); the tokens that reach the bound are
listed, all chunks in parallel, and one program per row searches among them. If they do not suffice
(many ties, a flat distribution), the whole row is searched. Both searches bisect the range of
integer keys, which are in the order of the logits (`weights.key_of`).
"""

# ruff: noqa: PLR0917 - a kernel takes pointers and strides; its docstring is its formula


# mypy: disable-error-code="no-untyped-def"

import torch
import triton
import triton.language as tl
from torch import Tensor

from yaie_kernels.triton.sampling.weights import (
    GREEDY_BELOW,
    LOWEST_KEY,
    NO_KEY,
    inverse_of,
    key_of,
    load_logits,
    row_peak,
    weights_of,
)

_BLOCK = 256  # tokens per block; the largest represents the block in the choice of the bound
_FEW = 2048  # most tokens that are listed, and searched in registers


@triton.jit
def _filtered(temperature_ptr, top_k_ptr, top_p_ptr, row, vocab):
    """Whether a row has a cut-off by count (top-k), and whether it has one by mass (top-p)."""
    drawn = tl.load(temperature_ptr + row) >= GREEDY_BELOW
    top_k = tl.load(top_k_ptr + row)
    return drawn & (top_k > 0) & (top_k < vocab), drawn & (tl.load(top_p_ptr + row) < 1.0)


@triton.jit
def _held(
    logits_ptr, base, vocab, inverse, peak, floor_key, a, b, c,
    BY_MASS: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """Counts and masses of the tokens with key >= a, >= b, >= c (and >= floor_key)."""
    count_a = tl.zeros([CHUNK], tl.int32)  # reduced across lanes once, after the loop
    count_b = tl.zeros([CHUNK], tl.int32)
    count_c = tl.zeros([CHUNK], tl.int32)
    mass_a = tl.zeros([CHUNK], tl.int64)
    mass_b = tl.zeros([CHUNK], tl.int64)
    mass_c = tl.zeros([CHUNK], tl.int64)
    for start in range(0, vocab, CHUNK):
        token = start + tl.arange(0, CHUNK)
        x = load_logits(logits_ptr, base, token, vocab)
        key = tl.where(token < vocab, key_of(x), -2147483648)
        key = tl.where(key >= floor_key, key, -2147483648)
        count_a += (key >= a).to(tl.int32)
        count_b += (key >= b).to(tl.int32)
        count_c += (key >= c).to(tl.int32)
        if BY_MASS:
            weight = weights_of(x, inverse, peak)
            mass_a += tl.where(key >= a, weight, 0)
            mass_b += tl.where(key >= b, weight, 0)
            mass_c += tl.where(key >= c, weight, 0)
    counted_a = tl.sum(count_a, axis=0).to(tl.int64)
    counted_b = tl.sum(count_b, axis=0).to(tl.int64)
    counted_c = tl.sum(count_c, axis=0).to(tl.int64)
    if BY_MASS:
        held_a = tl.sum(mass_a, axis=0)
        held_b = tl.sum(mass_b, axis=0)
        held_c = tl.sum(mass_c, axis=0)
    else:
        held_a = counted_a
        held_b = counted_b
        held_c = counted_c
    return counted_a, counted_b, counted_c, held_a, held_b, held_c


@triton.jit
def _search(
    logits_ptr, base, vocab, inverse, peak, floor_key, goal,
    BY_MASS: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """A key t so that the tokens with key >= t are the fewest that reach the goal.

    The answer is in [low, high]. Each pass over the row divides this range by four, until only one
    token has its key in the range.
    """
    low = floor_key
    high = key_of(peak).to(tl.int64)
    count_low = tl.full([], 2147483647, tl.int64)
    count_above = tl.full([], 0, tl.int64)  # tokens with key > high
    while (low < high) & (count_low > count_above + 1):
        span = high - low
        a = low + (span + 3) // 4
        b = low + (2 * span + 3) // 4
        c = low + (3 * span + 3) // 4
        count_a, count_b, count_c, held_a, held_b, held_c = _held(
            logits_ptr, base, vocab, inverse, peak, floor_key.to(tl.int32),
            a.to(tl.int32), b.to(tl.int32), c.to(tl.int32), BY_MASS, CHUNK,
        )  # fmt: skip
        # from c down to a: a mark that does not reach the goal lowers the upper limit
        count_above = tl.where(held_c >= goal, count_above, count_c)
        high = tl.where(held_c >= goal, high, c - 1)
        count_above = tl.where(held_b >= goal, count_above, count_b)
        high = tl.where(held_b >= goal, high, b - 1)
        count_above = tl.where(held_a >= goal, count_above, count_a)
        high = tl.where(held_a >= goal, high, a - 1)
        # from a up to c: a mark that reaches the goal raises the lower limit
        count_low = tl.where(held_a >= goal, count_a, count_low)
        low = tl.where(held_a >= goal, a, low)
        count_low = tl.where(held_b >= goal, count_b, count_low)
        low = tl.where(held_b >= goal, b, low)
        count_low = tl.where(held_c >= goal, count_c, count_low)
        low = tl.where(held_c >= goal, c, low)
    return low


@triton.jit
def _largest_reaching(key, amount, low, high, goal):
    """The largest t in [low, high] so that the tokens with key >= t have `amount` >= goal in sum;
    low if there is none.
    """
    while low < high:
        middle = (low + high + 1) >> 1
        reached = tl.sum(tl.where(key >= middle, amount, 0), axis=0) >= goal
        low = tl.where(reached, middle, low)
        high = tl.where(reached, high, middle - 1)
    return low


@triton.jit
def _block_kernel(
    logits_ptr, block_key_ptr, temperature_ptr, top_k_ptr, top_p_ptr,
    vocab, row_stride, CHUNK: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The largest key of each block of a chunk."""
    row = tl.program_id(1).to(tl.int64)
    chunk = tl.program_id(0)
    by_count, by_mass = _filtered(temperature_ptr, top_k_ptr, top_p_ptr, row, vocab)
    if by_count | by_mass:
        blocks: tl.constexpr = CHUNK // BLOCK
        token = chunk * CHUNK + tl.arange(0, CHUNK)
        key = key_of(load_logits(logits_ptr, row * row_stride, token, vocab))
        place = (row * tl.num_programs(0) + chunk) * blocks + tl.arange(0, blocks)
        tl.store(block_key_ptr + place, tl.max(tl.reshape(key, (blocks, BLOCK)), axis=1))


@triton.jit
def _bound_kernel(
    block_key_ptr, bound_ptr, found_ptr, temperature_ptr, top_k_ptr, top_p_ptr,
    vocab, blocks, FEW: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """A key that the largest tokens of top_k blocks reach; without top-k, of 3/4 of the blocks.

    `found` starts at 0, or above FEW if no tokens are to be listed.
    """
    row = tl.program_id(0).to(tl.int64)
    by_count, by_mass = _filtered(temperature_ptr, top_k_ptr, top_p_ptr, row, vocab)
    if by_count | by_mass:
        wanted = tl.where(by_count, tl.load(top_k_ptr + row), tl.maximum(blocks * 3 // 4, 1))
        lane = tl.arange(0, BLOCKS)
        key = tl.load(block_key_ptr + row * blocks + lane, mask=lane < blocks, other=NO_KEY)
        low = tl.full([], LOWEST_KEY, tl.int64)
        if vocab > FEW:
            high = tl.max(key, axis=0).to(tl.int64)
            ones = tl.full([BLOCKS], 1, tl.int32)
            low = _largest_reaching(key.to(tl.int64), ones, low, high, wanted)
        listed = (vocab <= FEW) | (wanted <= blocks)
        tl.store(bound_ptr + row, low.to(tl.int32))
        tl.store(found_ptr + row, tl.where(listed, 0, FEW + 1))


@triton.jit
def _list_kernel(
    logits_ptr, peak_ptr, bound_ptr, few_ptr, found_ptr, mass_ptr,
    temperature_ptr, top_k_ptr, top_p_ptr, vocab, row_stride, chunks,
    FEW: tl.constexpr, CHUNK: tl.constexpr, CHUNKS: tl.constexpr,
):  # fmt: skip
    """List the logits of a chunk that reach the bound, in any order; sum the chunk's mass."""
    row = tl.program_id(1).to(tl.int64)
    chunk = tl.program_id(0)
    by_count, by_mass = _filtered(temperature_ptr, top_k_ptr, top_p_ptr, row, vocab)
    if by_count | by_mass:
        token = chunk * CHUNK + tl.arange(0, CHUNK)
        x = load_logits(logits_ptr, row * row_stride, token, vocab)
        reached = (token < vocab) & (key_of(x) >= tl.load(bound_ptr + row))
        count = tl.sum(reached.to(tl.int32), axis=0)
        if count > 0:
            first = tl.atomic_add(found_ptr + row, count)
            place = first + tl.cumsum(reached.to(tl.int32), axis=0) - 1
            tl.store(few_ptr + row * FEW + place, x, mask=reached & (place < FEW))
        if by_mass:
            peak = tl.max(row_peak(peak_ptr, row, chunks, CHUNKS), axis=0)
            weight = weights_of(x, inverse_of(tl.load(temperature_ptr + row)), peak)
            mass = tl.sum(tl.where(token < vocab, weight, 0), axis=0)
            tl.store(mass_ptr + row * chunks + chunk, mass)


@triton.jit
def _goal(top_p, mass):
    """ceil(top_p * mass), at least 1."""
    wanted = top_p.to(tl.float64) * mass.to(tl.float64)
    goal = wanted.to(tl.int64)
    return tl.maximum(goal + (goal.to(tl.float64) < wanted).to(tl.int64), 1)


@triton.jit
def _few_kernel(
    peak_ptr, few_ptr, found_ptr, mass_ptr, floor_key_ptr, left_ptr,
    temperature_ptr, top_k_ptr, top_p_ptr, vocab, chunks,
    FEW: tl.constexpr, CHUNKS: tl.constexpr,
):  # fmt: skip
    """The cut-off key of a row, as far as the listed tokens determine it.

    `left`: 0: it is complete; 1: the cut-off by mass is missing; 2: both cut-offs are missing.
    """
    row = tl.program_id(0).to(tl.int64)
    floor_key = tl.full([], LOWEST_KEY, tl.int64)
    left = tl.full([], 0, tl.int32)
    by_count, by_mass = _filtered(temperature_ptr, top_k_ptr, top_p_ptr, row, vocab)
    if by_count | by_mass:
        found = tl.load(found_ptr + row)
        if found > FEW:
            left += tl.where(by_count, 2, 1)
        else:
            peak = tl.max(row_peak(peak_ptr, row, chunks, CHUNKS), axis=0)
            highest = key_of(peak).to(tl.int64)
            lane = tl.arange(0, FEW)
            x = tl.load(few_ptr + row * FEW + lane, mask=lane < found, other=float("-inf"))
            key = tl.where(lane < found, key_of(x), NO_KEY).to(tl.int64)
            if by_count:
                ones = tl.full([FEW], 1, tl.int32)
                top_k = tl.load(top_k_ptr + row)
                floor_key = _largest_reaching(key, ones, floor_key, highest, top_k)
            if by_mass:
                weight = weights_of(x, inverse_of(tl.load(temperature_ptr + row)), peak)
                weight = tl.where(key >= floor_key, weight, 0)
                held = tl.sum(weight, axis=0)
                lanes = tl.arange(0, CHUNKS)
                masses = tl.load(mass_ptr + row * chunks + lanes, mask=lanes < chunks, other=0)
                mass = tl.where(by_count, held, tl.sum(masses, axis=0))
                goal = _goal(tl.load(top_p_ptr + row), mass)
                if held >= goal:
                    floor_key = _largest_reaching(key, weight, floor_key, highest, goal)
                else:
                    left += 1
    tl.store(floor_key_ptr + row, floor_key.to(tl.int32))
    tl.store(left_ptr + row, left)


@triton.jit
def _whole_kernel(
    logits_ptr, peak_ptr, floor_key_ptr, left_ptr, temperature_ptr, top_k_ptr, top_p_ptr,
    vocab, row_stride, chunks, CHUNK: tl.constexpr, CHUNKS: tl.constexpr,
):  # fmt: skip
    """The cut-off key from all logits of a row, if the listed tokens did not determine it."""
    row = tl.program_id(0).to(tl.int64)
    left = tl.load(left_ptr + row)
    if left > 0:
        base = row * row_stride
        inverse = inverse_of(tl.load(temperature_ptr + row))
        peak = tl.max(row_peak(peak_ptr, row, chunks, CHUNKS), axis=0)
        floor_key = tl.load(floor_key_ptr + row).to(tl.int64)
        if left == 2:
            top_k = tl.load(top_k_ptr + row).to(tl.int64)
            floor_key = _search(
                logits_ptr, base, vocab, inverse, peak, floor_key, top_k, False, CHUNK
            )
        top_p = tl.load(top_p_ptr + row)
        if top_p < 1.0:
            least = floor_key.to(tl.int32)
            _, _, _, mass, _, _ = _held(
                logits_ptr, base, vocab, inverse, peak, least, least, least, least, True, CHUNK
            )
            goal = _goal(top_p, mass)
            floor_key = _search(
                logits_ptr, base, vocab, inverse, peak, floor_key, goal, True, CHUNK
            )
        tl.store(floor_key_ptr + row, floor_key.to(tl.int32))


def cut_offs(
    logits: Tensor,
    peak: Tensor,
    mass: Tensor,
    temperature: Tensor,
    top_k: Tensor,
    top_p: Tensor,
    **sizes: int,
) -> Tensor:
    """Keys [B] int32 below which top-k and top-p drop a row's tokens.

    peak[B, chunks] float32: largest logit of each chunk; mass[B, chunks] int64: scratch.
    """
    batch, vocab = logits.shape
    chunk, chunks = sizes["CHUNK"], peak.shape[1]
    block = min(_BLOCK, chunk)
    blocks = chunks * (chunk // block)
    block_key = torch.empty((batch, blocks), dtype=torch.int32, device=logits.device)
    floor_key = torch.empty(batch, dtype=torch.int32, device=logits.device)
    bound, found, left = torch.empty((3, batch), dtype=torch.int32, device=logits.device)
    few = torch.empty((batch, _FEW), dtype=torch.float32, device=logits.device)
    filters = (temperature, top_k, top_p)
    shape = (vocab, logits.stride(0))
    exact = {"num_warps": 8, "enable_fp_fusion": False}
    _block_kernel[(chunks, batch)](
        logits, block_key, *filters, *shape, CHUNK=chunk, BLOCK=block, num_warps=4
    )
    _bound_kernel[(batch,)](
        block_key, bound, found, *filters, vocab, blocks,
        FEW=_FEW, BLOCKS=triton.next_power_of_2(blocks), num_warps=4,
    )  # fmt: skip
    _list_kernel[(chunks, batch)](
        logits, peak, bound, few, found, mass, *filters, *shape, chunks, FEW=_FEW, **sizes, **exact
    )
    _few_kernel[(batch,)](
        peak, few, found, mass, floor_key, left, *filters, vocab, chunks,
        FEW=_FEW, CHUNKS=sizes["CHUNKS"], **exact,
    )  # fmt: skip
    _whole_kernel[(batch,)](
        logits, peak, floor_key, left, *filters, *shape, chunks,
        **sizes, num_warps=16, enable_fp_fusion=False,
    )  # fmt: skip
    return floor_key
