"""Shared by the decode kernels: a row's extent, and the online softmax over some of its tokens.

Online softmax: Milakov & Gimelshein 2018 (arXiv:1805.02867), in the form of FlashAttention-2 (Dao
2023, arXiv:2307.08691), in powers of two.
"""

# ruff: noqa: PLR0917 - a kernel takes pointers and strides; its docstring is its formula


# mypy: disable-error-code="no-untyped-def"

import triton
import triton.language as tl

from yaie_kernels.triton.attention.layout import add_tail, own_values


@triton.jit
def row_extent(lens_ptr, starts_ptr, row, there, window, HAS_WINDOW: tl.constexpr):
    """(first visible token, length, index of the query) of a row; a padding row has length 0."""
    length = tl.load(lens_ptr + row, mask=there, other=0)
    query = tl.load(starts_ptr + row, mask=there, other=0)
    after = tl.load(starts_ptr + row + 1, mask=there, other=0)
    length = tl.where(after > query, length, 0)
    first = tl.maximum(length - window, 0) if HAS_WINDOW else tl.zeros_like(length)
    return first, length, query


@triton.jit
def attend_tokens(
    q, q_tail, low, high,
    k_ptr, v_ptr, table, scale, softcap, factor,
    cache_token_stride, value_token_stride, kv_head, head_dim, value_dim,
    PAGE: tl.constexpr, BLOCK_G: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_TAIL: tl.constexpr, BLOCK_V: tl.constexpr, VALUES: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr, EVEN_D: tl.constexpr, WIDE: tl.constexpr, PRECISION: tl.constexpr,
    AHEAD: tl.constexpr,
):  # fmt: skip
    """Online softmax over the tokens [low, high) -> (sums of values, best score, sum of shares).

    AHEAD: load the page ids one iteration ahead, because the loads of keys wait for them. This
    takes registers, which tiles of a latent cache and four programs per multiprocessor lack.
    """
    best = tl.full([BLOCK_G], float("-inf"), dtype=tl.float32)
    total = tl.zeros([BLOCK_G], dtype=tl.float32)
    acc = tl.zeros([BLOCK_G, BLOCK_V], dtype=tl.float32)
    col = tl.arange(0, BLOCK_D)
    offset = tl.arange(0, BLOCK_N)
    in_row = kv_head * head_dim + col
    if AHEAD:
        page = tl.load(table + (low + offset) // PAGE, mask=low + offset < high, other=0)
    for start in range(low, high, BLOCK_N):
        token = start + offset
        here = token < high
        if not AHEAD:
            page = tl.load(table + token // PAGE, mask=here, other=0)
        slot = (page.to(tl.int64) if WIDE else page) * PAGE + token % PAGE
        if AHEAD:
            page = tl.load(table + (token + BLOCK_N) // PAGE, mask=token + BLOCK_N < high, other=0)
        base = slot * cache_token_stride
        where = base[:, None] + in_row[None, :]
        mask = here[:, None] if EVEN_D else here[:, None] & (col < head_dim)[None, :]
        k = tl.load(k_ptr + where, mask=mask, other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision=PRECISION)
        if BLOCK_TAIL:
            scores = add_tail(
                scores, q_tail, k_ptr, base, here, kv_head, head_dim, BLOCK_D, BLOCK_TAIL, PRECISION
            )
        if HAS_SOFTCAP:
            bend = tl.exp2(scores * (scale * 2.8853900817779268 / softcap))
            scores = softcap * (1.0 - 2.0 / (bend + 1.0))
        scores = tl.where(here[None, :], scores, float("-inf"))
        peak = tl.maximum(best, tl.max(scores, axis=1))
        shrink = tl.exp2((best - peak) * factor)
        if PRECISION == "ieee":
            p = tl.exp2((scores - peak[:, None]) * factor)  # subtract first, against cancellation
        else:
            p = tl.exp2(scores * factor - (peak * factor)[:, None])  # one fused multiply-add
        total = total * shrink + tl.sum(p, axis=1)
        if VALUES == "columns":
            v = k
        elif VALUES == "like keys":
            v = tl.load(v_ptr + where, mask=mask, other=0.0)
        else:
            v = own_values(v_ptr, slot, here, value_token_stride, kv_head, value_dim, BLOCK_V)
        acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None], input_precision=PRECISION)
        best = peak
    return acc, best, total


@triton.jit
def load_query(
    q_ptr, query, head, lane, q_token_stride, q_head_stride, group, head_dim,
    BLOCK_D: tl.constexpr, BLOCK_TAIL: tl.constexpr,
):  # fmt: skip
    """Load one query's heads: (the first BLOCK_D columns, the columns after them)."""
    col = tl.arange(0, BLOCK_D)
    at = q_ptr + query.to(tl.int64) * q_token_stride + head[:, None] * q_head_stride
    here = (lane < group)[:, None]
    q = tl.load(at + col[None, :], mask=here & (col < head_dim)[None, :], other=0.0)
    q_tail = q  # unused without a tail
    if BLOCK_TAIL:
        tail = BLOCK_D + tl.arange(0, BLOCK_TAIL)
        q_tail = tl.load(at + tail[None, :], mask=here & (tail < head_dim)[None, :], other=0.0)
    return q, q_tail
