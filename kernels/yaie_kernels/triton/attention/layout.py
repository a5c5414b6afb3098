"""How attention kernels cut the keys and values of a cache into blocks of powers of two.

Up to 128 a key is one padded block. Wider ones that are no power of two, as those of latent
attention (192 = 128 + 64, 576 = 512 + 64), are a full block and a tail: padding would read nothing
more, but half of its registers and products would be zeros.
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
    """Block sizes, and where values lie.

    kind: "like keys": same sizes and strides; "columns": the keys' first block; "own": anything.
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
    """The smallest that is not less; triton's own takes microseconds, and each layer asks."""
    return 1 << (size - 1).bit_length()


@triton.jit
def table_of(tables_ptr, rows_ptr, row, table_stride):
    """Where a row's page ids begin: in line `row`, or the one that rows_ptr names for it."""
    line = row if rows_ptr is None else tl.load(rows_ptr + row)
    return tables_ptr + line.to(tl.int64) * table_stride


@triton.jit
def add_tail(
    scores, q_tail, k_ptr, base, here, kv_head, head_dim,
    BLOCK_D: tl.constexpr, BLOCK_TAIL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Scores with what the keys' columns past BLOCK_D add to them; base[n]: where a key begins."""
    col = BLOCK_D + tl.arange(0, BLOCK_TAIL)
    at = base[:, None] + (kv_head * head_dim + col)[None, :]
    tail = tl.load(k_ptr + at, mask=here[:, None] & (col < head_dim)[None, :], other=0.0)
    return tl.dot(q_tail, tl.trans(tail), scores, input_precision=PRECISION)


@triton.jit
def own_values(v_ptr, slot, here, token_stride, kv_head, value_dim, BLOCK_V: tl.constexpr):
    """Values [n, BLOCK_V] of a pool that is not laid out as the keys' is."""
    col = tl.arange(0, BLOCK_V)
    at = slot[:, None] * token_stride + (kv_head * value_dim + col)[None, :]
    return tl.load(v_ptr + at, mask=here[:, None] & (col < value_dim)[None, :], other=0.0)
