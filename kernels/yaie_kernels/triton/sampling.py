"""Sampling without a sort, over chunks of the vocabulary; see `reference.sampling` for the rules.

Three launches: the peak of each chunk, the integer weight of each chunk, the draw; the launches of
`cutoffs` come in between where rows have top-k or top-p. Weights are integers, so their sums agree
with the reference's to the last bit whatever the order.
"""

# ruff: noqa: PLR0917 - a kernel takes pointers and strides; its docstring is its formula


# mypy: disable-error-code="no-untyped-def"

import torch
import triton
import triton.language as tl
from torch import Tensor

from yaie_kernels import philox
from yaie_kernels.triton.cutoffs import cut_offs
from yaie_kernels.triton.weights import (
    GREEDY_BELOW,
    WEIGHT_ONE,
    inverse_of,
    key_of,
    load_logits,
    row_peak,
    weights_of,
)

_CHUNK = 4096
_M0 = tl.constexpr(philox.MULTIPLIERS[0])
_M1 = tl.constexpr(philox.MULTIPLIERS[1])
_STEP0 = tl.constexpr(philox.KEY_STEPS[0])
_STEP1 = tl.constexpr(philox.KEY_STEPS[1])
_KEY0 = tl.constexpr(philox.KEY[0])
_KEY1 = tl.constexpr(philox.KEY[1])
_ROUNDS = tl.constexpr(philox.ROUNDS)


@triton.jit
def _peak_kernel(
    logits_ptr, peak_ptr, best_ptr, vocab, row_stride, chunks, CHUNK: tl.constexpr
):  # fmt: skip
    """The largest logit of a chunk and the lowest token that has it."""
    row = tl.program_id(1).to(tl.int64)
    chunk = tl.program_id(0)
    token = chunk * CHUNK + tl.arange(0, CHUNK)
    x = load_logits(logits_ptr, row * row_stride, token, vocab)
    peak, lane = tl.max(x, axis=0, return_indices=True, return_indices_tie_break_left=True)
    tl.store(peak_ptr + row * chunks + chunk, peak)
    tl.store(best_ptr + row * chunks + chunk, chunk * CHUNK + lane)


@triton.jit
def _weigh_kernel(
    logits_ptr, peak_ptr, sums_ptr, floor_key_ptr, temperature_ptr, min_p_ptr,
    vocab, row_stride, chunks, FILTERED: tl.constexpr, CHUNK: tl.constexpr, CHUNKS: tl.constexpr,
):  # fmt: skip
    """The summed weight of what the filters leave of a chunk."""
    row = tl.program_id(1).to(tl.int64)
    chunk = tl.program_id(0)
    temperature = tl.load(temperature_ptr + row)
    if temperature >= GREEDY_BELOW:
        peak = tl.max(row_peak(peak_ptr, row, chunks, CHUNKS), axis=0)
        token = chunk * CHUNK + tl.arange(0, CHUNK)
        x = load_logits(logits_ptr, row * row_stride, token, vocab)
        weight = _left(x, temperature, peak, row, floor_key_ptr, min_p_ptr, FILTERED)
        tl.store(sums_ptr + row * chunks + chunk, tl.sum(weight, axis=0))


@triton.jit
def _left(x, temperature, peak, row, floor_key_ptr, min_p_ptr, FILTERED: tl.constexpr):
    """Weights of logits x, 0 where a filter drops the token."""
    weight = weights_of(x, inverse_of(temperature), peak)
    share = tl.load(min_p_ptr + row) * WEIGHT_ONE
    least = share.to(tl.int64)
    least += (least.to(tl.float32) < share).to(tl.int64)  # rounded up
    weight = tl.where(weight >= least, weight, 0)
    if FILTERED:
        weight = tl.where(key_of(x) >= tl.load(floor_key_ptr + row), weight, 0)
    return weight


@triton.jit
def _draw(seed, position, total):
    """floor(r * total / 2**62) with r from Philox4x32-10 at counter (seed, position)."""
    mask = tl.full([], 0xFFFFFFFF, tl.int64)
    c0 = seed & mask
    c1 = (seed >> 32) & mask
    c2 = position & mask
    c3 = (position >> 32) & mask
    key0 = tl.full([], _KEY0, tl.int64)
    key1 = tl.full([], _KEY1, tl.int64)
    for _ in range(_ROUNDS):
        product0 = c0 * tl.full([], _M0, tl.int64)
        product1 = c2 * tl.full([], _M1, tl.int64)
        c0 = ((product1 >> 32) & mask) ^ c1 ^ key0
        c2 = ((product0 >> 32) & mask) ^ c3 ^ key1
        c1 = product1 & mask
        c3 = product0 & mask
        key0 = (key0 + _STEP0) & mask
        key1 = (key1 + _STEP1) & mask
    r1 = c0 >> 1
    r0 = c1 >> 1
    t1 = total >> 31
    t0 = total & 0x7FFFFFFF
    middle = r1 * t0 + r0 * t1 + ((r0 * t0) >> 31)
    return r1 * t1 + (middle >> 31)


@triton.jit
def _draw_kernel(
    logits_ptr, peak_ptr, best_ptr, sums_ptr, floor_key_ptr,
    temperature_ptr, min_p_ptr, seed_ptr, position_ptr, ids_ptr,
    vocab, row_stride, chunks, FILTERED: tl.constexpr, CHUNK: tl.constexpr, CHUNKS: tl.constexpr,
):  # fmt: skip
    """The first token whose running weight passes the draw, or the argmax of a greedy row."""
    row = tl.program_id(0).to(tl.int64)
    temperature = tl.load(temperature_ptr + row)
    peaks = row_peak(peak_ptr, row, chunks, CHUNKS)
    peak, lead = tl.max(peaks, axis=0, return_indices=True, return_indices_tie_break_left=True)
    if temperature < GREEDY_BELOW:
        lead = tl.minimum(lead, chunks - 1)
        best = tl.load(best_ptr + row * chunks + lead)
        tl.store(ids_ptr + row, tl.minimum(best, vocab - 1).to(tl.int64))  # NaN rows may overrun
    else:
        lane = tl.arange(0, CHUNKS)
        sums = tl.load(sums_ptr + row * chunks + lane, mask=lane < chunks, other=0)
        total = tl.maximum(tl.sum(sums, axis=0), 1)
        target = _draw(tl.load(seed_ptr + row), tl.load(position_ptr + row), total)
        chunk = tl.sum((tl.cumsum(sums, axis=0) <= target).to(tl.int32), axis=0)
        target -= tl.sum(tl.where(lane < chunk, sums, 0), axis=0)
        token = chunk * CHUNK + tl.arange(0, CHUNK)
        x = load_logits(logits_ptr, row * row_stride, token, vocab)
        weight = _left(x, temperature, peak, row, floor_key_ptr, min_p_ptr, FILTERED)
        passed = tl.cumsum(weight, axis=0) <= target
        found = chunk * CHUNK + tl.sum(passed.to(tl.int32), axis=0)
        tl.store(ids_ptr + row, tl.minimum(found, vocab - 1).to(tl.int64))


def sample(
    logits: Tensor,
    temperature: Tensor,
    top_k: Tensor,
    top_p: Tensor,
    min_p: Tensor,
    seed: Tensor,
    position: Tensor,
    *,
    filtered: bool = True,
) -> Tensor:
    batch, vocab = logits.shape
    device = logits.device
    ids = torch.empty(batch, dtype=torch.int64, device=device)
    if batch == 0:
        return ids
    chunk = min(_CHUNK, triton.next_power_of_2(vocab))
    chunks = triton.cdiv(vocab, chunk)
    peak = torch.empty((batch, chunks), dtype=torch.float32, device=device)
    best = torch.empty((batch, chunks), dtype=torch.int32, device=device)
    sums = torch.empty((batch, chunks), dtype=torch.int64, device=device)
    shape = (vocab, logits.stride(0), chunks)
    sizes = {"CHUNK": chunk, "CHUNKS": triton.next_power_of_2(chunks)}
    exact = {"num_warps": 8, "enable_fp_fusion": False}
    _peak_kernel[(chunks, batch)](logits, peak, best, *shape, CHUNK=chunk, num_warps=4)
    floor_key = (
        cut_offs(logits, peak, sums, temperature, top_k, top_p, **sizes) if filtered else None
    )
    _weigh_kernel[(chunks, batch)](
        logits, peak, sums, floor_key, temperature, min_p, *shape,
        FILTERED=filtered, **sizes, **exact,
    )  # fmt: skip
    _draw_kernel[(batch,)](
        logits, peak, best, sums, floor_key, temperature, min_p, seed, position, ids, *shape,
        FILTERED=filtered, **sizes, **exact,
    )  # fmt: skip
    return ids
