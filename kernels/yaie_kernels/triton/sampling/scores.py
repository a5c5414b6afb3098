"""Log-probabilities and the most likely tokens of each row, in two launches without sorting.

The first launch computes for each chunk of the vocabulary its peak, its sum of exponentials, how
many tokens have a larger logit than the row's given token, and its best tokens, one by one. The
second joins the chunks of a row, as in an online softmax (arXiv:1805.02867). Long lists of best
tokens are left to the reference.
"""

# ruff: noqa: PLR0917 - a kernel takes pointers and strides; its docstring is its formula


# mypy: disable-error-code="no-untyped-def"

import torch
import triton
import triton.language as tl
from torch import Tensor

from yaie_kernels import reference
from yaie_kernels.triton.sampling.weights import NO_KEY, key_of, load_logits

_CHUNK = 4096
_LONGEST = 32  # most tokens found one by one; longer lists are sorted by the reference


@triton.jit
def _take_best(key, taken: tl.constexpr):
    """(the largest key, the first lane that has it, the keys without it)."""
    best, lane = tl.max(key, axis=0, return_indices=True, return_indices_tie_break_left=True)
    lanes = tl.arange(0, taken)
    return best, lane, tl.where(lanes == lane, NO_KEY, key)


@triton.jit
def _logit_of(key):
    """The inverse of `key_of`."""
    return (key ^ ((key >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def _chunk_kernel(
    logits_ptr, tokens_ptr, peak_ptr, sum_ptr, above_ptr, best_key_ptr, best_id_ptr,
    vocab, row_stride, chunks, count, CHUNK: tl.constexpr,
):  # fmt: skip
    """Peak, sum of exp(x - peak), number of tokens above the given one, `count` best of a chunk."""
    row = tl.program_id(1).to(tl.int64)
    chunk = tl.program_id(0)
    part = row * chunks + chunk
    token = chunk * CHUNK + tl.arange(0, CHUNK)
    x = load_logits(logits_ptr, row * row_stride, token, vocab)
    own = tl.load(logits_ptr + row * row_stride + tl.load(tokens_ptr + row)).to(tl.float32)
    peak = tl.max(x, axis=0)
    shifted = x - tl.where(peak == float("-inf"), 0.0, peak)
    tl.store(peak_ptr + part, peak)
    tl.store(sum_ptr + part, tl.sum(tl.exp(shifted), axis=0))
    tl.store(above_ptr + part, tl.sum((x > own).to(tl.int32), axis=0))
    key = tl.where(token < vocab, key_of(x), NO_KEY)
    for rank in range(count):
        best, lane, key = _take_best(key, CHUNK)
        tl.store(best_key_ptr + part * count + rank, best)
        tl.store(best_id_ptr + part * count + rank, chunk * CHUNK + lane)


@triton.jit
def _join_kernel(
    logits_ptr, tokens_ptr, peak_ptr, sum_ptr, above_ptr, best_key_ptr, best_id_ptr,
    chosen_ptr, rank_ptr, top_id_ptr, top_ptr,
    row_stride, chunks, count, CHUNKS: tl.constexpr, BEST: tl.constexpr,
):  # fmt: skip
    """(x - peak) - log(sum of exp(x - peak)) of the row's given token and of its best tokens."""
    row = tl.program_id(0).to(tl.int64)
    chunk = tl.arange(0, CHUNKS)
    inside = chunk < chunks
    peaks = tl.load(peak_ptr + row * chunks + chunk, mask=inside, other=float("-inf"))
    sums = tl.load(sum_ptr + row * chunks + chunk, mask=inside, other=0.0)
    above = tl.load(above_ptr + row * chunks + chunk, mask=inside, other=0)
    peak = tl.max(peaks, axis=0)
    normaliser = tl.log(tl.sum(sums * tl.exp(peaks - peak), axis=0))
    own = tl.load(logits_ptr + row * row_stride + tl.load(tokens_ptr + row)).to(tl.float32)
    tl.store(chosen_ptr + row, (own - peak) - normaliser)
    tl.store(rank_ptr + row, (tl.sum(above, axis=0) + 1).to(tl.int64))
    lane = tl.arange(0, BEST)
    base = row * chunks * count
    key = tl.load(best_key_ptr + base + lane, mask=lane < chunks * count, other=NO_KEY)
    for rank in range(count):
        best, place, key = _take_best(key, BEST)
        token = tl.load(best_id_ptr + base + place)
        tl.store(top_id_ptr + row * count + rank, token.to(tl.int64))
        tl.store(top_ptr + row * count + rank, (_logit_of(best) - peak) - normaliser)


def score_tokens(
    logits: Tensor, tokens: Tensor, count: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    rows, vocab = logits.shape
    if rows == 0 or count > min(_LONGEST, vocab):
        return reference.score_tokens(logits, tokens, count)
    device = logits.device
    chunk = min(_CHUNK, triton.next_power_of_2(vocab))
    chunks = triton.cdiv(vocab, chunk)
    peak, total = torch.empty((2, rows, chunks), dtype=torch.float32, device=device)
    above = torch.empty((rows, chunks), dtype=torch.int32, device=device)
    best = torch.empty((2, rows, chunks, max(count, 1)), dtype=torch.int32, device=device)
    chosen = torch.empty(rows, dtype=torch.float32, device=device)
    rank = torch.empty(rows, dtype=torch.int64, device=device)
    top_ids = torch.empty((rows, count), dtype=torch.int64, device=device)
    top = torch.empty((rows, count), dtype=torch.float32, device=device)
    parts = (logits, tokens, peak, total, above, best[0], best[1])
    _chunk_kernel[(chunks, rows)](
        *parts, vocab, logits.stride(0), chunks, count, CHUNK=chunk, num_warps=8
    )
    _join_kernel[(rows,)](
        *parts, chosen, rank, top_ids, top, logits.stride(0), chunks, count,
        CHUNKS=triton.next_power_of_2(chunks),
        BEST=triton.next_power_of_2(chunks * max(count, 1)),
        num_warps=4,
    )  # fmt: skip
    return chosen, rank, top_ids, top
