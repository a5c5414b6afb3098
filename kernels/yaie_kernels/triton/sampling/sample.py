"""Sampling without sorting, over chunks of the vocabulary; `reference.sampling` defines the rules.

Greedy sampling takes two launches: the peak of each chunk, which reads all logits, and the first
token with the row's peak, which reads one chunk. Drawing takes three: the peak of each chunk and
its integer weight, which both read all logits, and the draw. If a row has top-k or top-p, the
launches of `cutoffs` come before the weights. Weights are integers, so their sums equal the
reference's bit for bit in any order.
"""

# ruff: noqa: PLR0917 - a kernel takes pointers and strides; its docstring is its formula


# mypy: disable-error-code="no-untyped-def"

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from yaie_kernels import philox
from yaie_kernels.triton.launch import await_previous, dependent
from yaie_kernels.triton.sampling.cutoffs import cut_offs
from yaie_kernels.triton.sampling.weights import (
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
    logits_ptr, peak_ptr, vocab, row_stride, chunks,
    CHUNK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """The largest logit of a chunk; NaN counts as +inf."""
    await_previous(PDL)
    row = tl.program_id(1).to(tl.int64)
    chunk = tl.program_id(0)
    token = chunk * CHUNK + tl.arange(0, CHUNK)
    x = load_logits(logits_ptr, row * row_stride, token, vocab)
    x = tl.where(x != x, float("inf"), x)  # noqa: PLR0124 - NaN, which a maximum would ignore
    tl.store(peak_ptr + row * chunks + chunk, tl.max(x, axis=0))


@triton.jit
def _first(
    logits_ptr, peak_ptr, row, vocab, row_stride, chunks,
    CHUNK: tl.constexpr, CHUNKS: tl.constexpr,
):  # fmt: skip
    """The row's largest logit, and the lowest token that has it if it is finite."""
    peaks = row_peak(peak_ptr, row, chunks, CHUNKS)
    peak, chunk = tl.max(peaks, axis=0, return_indices=True, return_indices_tie_break_left=True)
    token = chunk * CHUNK + tl.arange(0, CHUNK)
    x = load_logits(logits_ptr, row * row_stride, token, vocab)
    return peak, tl.min(tl.where(x == peak, token, vocab), axis=0).to(tl.int64)


@triton.jit
def _store(ids_ptr, finite_ptr, row_peak_ptr, row, token, peak):
    finite = tl.abs(peak) < float("inf")
    tl.store(ids_ptr + row, tl.where(finite, token, 0))
    tl.store(finite_ptr + row, finite)
    tl.store(row_peak_ptr + row, peak)


@triton.jit
def _greedy_kernel(
    logits_ptr, peak_ptr, ids_ptr, finite_ptr, row_peak_ptr, vocab, row_stride, chunks,
    CHUNK: tl.constexpr, CHUNKS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """The argmax of a row."""
    await_previous(PDL)
    row = tl.program_id(0).to(tl.int64)
    peak, token = _first(logits_ptr, peak_ptr, row, vocab, row_stride, chunks, CHUNK, CHUNKS)
    _store(ids_ptr, finite_ptr, row_peak_ptr, row, token, peak)


@triton.jit
def _weigh_kernel(
    logits_ptr, peak_ptr, sums_ptr, floor_key_ptr, rows_ptr, temperature_ptr, min_p_ptr,
    vocab, row_stride, chunks,
    CHUNK: tl.constexpr, CHUNKS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """The sum of the weights of a chunk's tokens that the filters keep."""
    await_previous(PDL)
    row = tl.program_id(1).to(tl.int64)
    chunk = tl.program_id(0)
    line = _line_of(rows_ptr, row)
    temperature = tl.load(temperature_ptr + line)
    if temperature >= GREEDY_BELOW:
        token = chunk * CHUNK + tl.arange(0, CHUNK)
        x = load_logits(logits_ptr, row * row_stride, token, vocab)
        peak = tl.max(row_peak(peak_ptr, row, chunks, CHUNKS), axis=0)
        weight = _above_floor(x, temperature, peak, row, floor_key_ptr)
        least = _least(min_p_ptr, line)
        if least > 0:  # without min-p, leave out the comparison: an eighth of the instructions
            mass = tl.sum(tl.where(weight >= least, weight, 0), axis=0)
        else:
            mass = tl.sum(weight, axis=0)
        tl.store(sums_ptr + row * chunks + chunk, mass)


@triton.jit
def _line_of(rows_ptr, row):
    """Index of a row's sampling parameters."""
    return row if rows_ptr is None else tl.load(rows_ptr + row)


@triton.jit
def _above_floor(x, temperature, peak, row, floor_key_ptr):
    """Weights of logits x, 0 for tokens that top-k or top-p drops."""
    weight = weights_of(x, inverse_of(temperature), peak)
    if floor_key_ptr is not None:
        weight = tl.where(key_of(x) >= tl.load(floor_key_ptr + row), weight, 0)
    return weight


@triton.jit
def _least(min_p_ptr, line):
    """The smallest weight that min-p keeps."""
    share = tl.load(min_p_ptr + line) * WEIGHT_ONE
    least = share.to(tl.int64)
    return least + (least.to(tl.float32) < share).to(tl.int64)  # rounded up


@triton.jit
def _draw(seed, position, total):
    """floor(r * total / 2**62) with r from Philox4x32-10 at counter (seed, position).

    The same arithmetic as `yaie_kernels.philox`, which cites the source.
    """
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
    logits_ptr, peak_ptr, sums_ptr, floor_key_ptr, rows_ptr,
    temperature_ptr, min_p_ptr, seed_ptr, position_ptr, ids_ptr, finite_ptr, row_peak_ptr,
    vocab, row_stride, chunks,
    CHUNK: tl.constexpr, CHUNKS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """The first token whose running sum of weights exceeds the draw; the argmax of a greedy row."""
    await_previous(PDL)
    row = tl.program_id(0).to(tl.int64)
    line = _line_of(rows_ptr, row)
    temperature = tl.load(temperature_ptr + line)
    if temperature >= GREEDY_BELOW:
        peak = tl.max(row_peak(peak_ptr, row, chunks, CHUNKS), axis=0)
        lane = tl.arange(0, CHUNKS)
        sums = tl.load(sums_ptr + row * chunks + lane, mask=lane < chunks, other=0)
        total = tl.maximum(tl.sum(sums, axis=0), 1)
        target = _draw(tl.load(seed_ptr + line), tl.load(position_ptr + row), total)
        ends = tl.cumsum(sums, axis=0)
        chunk = tl.sum((ends <= target).to(tl.int32), axis=0)
        target -= tl.max(tl.where(ends <= target, ends, 0), axis=0)
        tokens = chunk * CHUNK + tl.arange(0, CHUNK)
        x = load_logits(logits_ptr, row * row_stride, tokens, vocab)
        weight = _above_floor(x, temperature, peak, row, floor_key_ptr)
        weight = tl.where(weight >= _least(min_p_ptr, line), weight, 0)
        passed = tl.cumsum(weight, axis=0) <= target
        found = chunk * CHUNK + tl.sum(passed.to(tl.int32), axis=0)
        token = tl.minimum(found, vocab - 1).to(tl.int64)
    else:
        peak, token = _first(logits_ptr, peak_ptr, row, vocab, row_stride, chunks, CHUNK, CHUNKS)
    _store(ids_ptr, finite_ptr, row_peak_ptr, row, token, peak)


class _Rows(NamedTuple):
    """Results of each row: tokens [B] int64, finite [B] bool, peak [B] float32."""

    tokens: Tensor
    finite: Tensor
    peak: Tensor

    @staticmethod
    def of(logits: Tensor) -> "_Rows":
        return _Rows(
            *(
                torch.empty(logits.shape[0], dtype=dtype, device=logits.device)
                for dtype in (torch.int64, torch.bool, torch.float32)
            )
        )


def _peaks(logits: Tensor) -> tuple[Tensor, dict[str, int]]:
    """(peak [B, chunks] float32, the constexprs CHUNK and CHUNKS)."""
    batch, vocab = logits.shape
    chunk = min(_CHUNK, triton.next_power_of_2(vocab))
    chunks = triton.cdiv(vocab, chunk)
    peak = torch.empty((batch, chunks), dtype=torch.float32, device=logits.device)
    _peak_kernel[(chunks, batch)](
        logits, peak, vocab, logits.stride(0), chunks,
        CHUNK=chunk, **dependent(logits), num_warps=8,
    )  # fmt: skip
    return peak, {"CHUNK": chunk, "CHUNKS": triton.next_power_of_2(chunks)}


def greedy(logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    found = _Rows.of(logits)
    if len(logits):
        peak, sizes = _peaks(logits)
        _greedy_kernel[(len(logits),)](
            logits, peak, *found, logits.shape[1], logits.stride(0), peak.shape[1],
            **sizes, **dependent(logits), num_warps=4,
        )  # fmt: skip
    return found


def sample(
    logits: Tensor,
    temperature: Tensor,
    top_k: Tensor,
    top_p: Tensor,
    min_p: Tensor,
    seed: Tensor,
    position: Tensor,
    *,
    rows: Tensor | None = None,
    filtered: bool = True,
) -> tuple[Tensor, Tensor, Tensor]:
    batch, vocab = logits.shape
    found = _Rows.of(logits)
    if batch == 0:
        return found
    peak, sizes = _peaks(logits)
    chunks = peak.shape[1]
    sums = torch.empty((batch, chunks), dtype=torch.int64, device=logits.device)
    shape = (vocab, logits.stride(0), chunks)
    exact = {"enable_fp_fusion": False, **dependent(logits)}
    floor_key = None
    if filtered:
        heat, count, mass = (  # gathered once, because many kernels read them
            values if rows is None else values[rows] for values in (temperature, top_k, top_p)
        )
        floor_key = cut_offs(logits, peak, sums, heat, count, mass, **sizes)
    _weigh_kernel[(chunks, batch)](
        logits, peak, sums, floor_key, rows, temperature, min_p, *shape,
        **sizes, **exact, num_warps=4,
    )  # fmt: skip
    _draw_kernel[(batch,)](
        logits, peak, sums, floor_key, rows, temperature, min_p, seed, position, *found,
        *shape, **sizes, **exact, num_warps=8,
    )  # fmt: skip
    return found
