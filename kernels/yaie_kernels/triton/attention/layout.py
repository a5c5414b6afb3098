"""Divides keys and values into blocks whose sizes are powers of two, for the attention kernels.

A key of up to 128 elements is one padded block. A wider key whose size is no power of two, as in
latent attention (192 = 128 + 64, 576 = 512 + 64), is a full block and a tail: padding would not
read more, but nearly half of the registers and products would be zeros.
"""

# ruff: noqa: PLR0917 - a kernel takes pointers and strides


# mypy: disable-error-code="no-untyped-def"

import functools
from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

_PADDED = 128


class Layout(NamedTuple):
    """Block sizes of keys, their tail and values, and the placement of values.

    kind: "like keys": same sizes and strides as the keys; "columns": the values are the keys' first
    block; "own": any other placement.
    """

    keys: int
    tail: int
    values: int
    kind: str


def layout(k_cache: Tensor, v_cache: Tensor) -> Layout:
    """Blocks for caches [pages, page_size, Hk, D] and [.., Dv]."""
    same_strides = k_cache.stride() == v_cache.stride()
    one_pool = same_strides and k_cache.data_ptr() == v_cache.data_ptr()
    return _layout(k_cache.shape[3], v_cache.shape[3], same_strides, one_pool)


@functools.cache
def _layout(key_size: int, value_size: int, same_strides: bool, one_pool: bool) -> Layout:  # noqa: FBT001 - key of a cache
    keys, tail = power_of_2(key_size), 0
    if keys > key_size > _PADDED:
        keys //= 2
        tail = max(16, power_of_2(key_size - keys))
    values = power_of_2(value_size)
    if one_pool and values == value_size == keys:
        return Layout(keys, tail, values, "columns")
    like_keys = same_strides and key_size == value_size and not tail
    return Layout(keys, tail, values, "like keys" if like_keys else "own")


def power_of_2(size: int) -> int:
    """The smallest power of two >= size.

    Every layer calls this, and triton's own function takes microseconds.
    """
    return 1 << (size - 1).bit_length()


@triton.jit
def table_of(tables_ptr, rows_ptr, row, table_stride):
    """Pointer to a row's page ids: in line `row`, or in line rows[row] if there is `rows`."""
    line = row if rows_ptr is None else tl.load(rows_ptr + row)
    return tables_ptr + line.to(tl.int64) * table_stride


@triton.jit
def add_tail(
    scores, q_tail, k_ptr, base, here, kv_head, head_dim,
    BLOCK_D: tl.constexpr, BLOCK_TAIL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Add to scores the products of the keys' columns past BLOCK_D; base[n]: start of each key."""
    col = BLOCK_D + tl.arange(0, BLOCK_TAIL)
    at = base[:, None] + (kv_head * head_dim + col)[None, :]
    tail = tl.load(k_ptr + at, mask=here[:, None] & (col < head_dim)[None, :], other=0.0)
    return tl.dot(q_tail, tl.trans(tail), scores, input_precision=PRECISION)


@triton.jit
def own_values(v_ptr, slot, here, token_stride, kv_head, value_dim, BLOCK_V: tl.constexpr):
    """Load values [n, BLOCK_V] from a cache whose layout differs from that of the keys."""
    col = tl.arange(0, BLOCK_V)
    at = slot[:, None] * token_stride + (kv_head * value_dim + col)[None, :]
    return tl.load(v_ptr + at, mask=here[:, None] & (col < value_dim)[None, :], other=0.0)
