"""Writes and page copies in paged KV caches [pages, page_size, kv_heads, key or value size]."""

# ruff: noqa: PLR0917 - a kernel takes pointers and strides; its docstring is its formula


# mypy: disable-error-code="no-untyped-def"

import triton
import triton.language as tl
from torch import Tensor

_COPY_BLOCK = 4096


@triton.jit
def _write_kv_kernel(
    k_ptr, v_ptr, k_cache_ptr, v_cache_ptr, slots_ptr,
    k_token_stride, k_head_stride, v_token_stride, v_head_stride,
    key_size, key_row, value_size, value_row, BLOCK: tl.constexpr,
):  # fmt: skip
    """cache[slot[t]] = (k[t], v[t]); a cache row is kv_heads * size contiguous elements."""
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots_ptr + token)
    element = tl.arange(0, BLOCK)
    in_key = element < key_row
    head, col = element // key_size, element % key_size
    k = tl.load(k_ptr + token * k_token_stride + head * k_head_stride + col, mask=in_key)
    tl.store(k_cache_ptr + slot * key_row + element, k, mask=in_key)
    in_value = element < value_row
    head, col = element // value_size, element % value_size
    v = tl.load(v_ptr + token * v_token_stride + head * v_head_stride + col, mask=in_value)
    tl.store(v_cache_ptr + slot * value_row + element, v, mask=in_value)


@triton.jit
def _copy_pages_kernel(cache_ptr, source_ptr, target_ptr, page_elements, BLOCK: tl.constexpr):
    """cache[target[i]] = cache[source[i]]."""
    row = tl.program_id(0)
    element = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = element < page_elements
    source = tl.load(source_ptr + row).to(tl.int64)
    target = tl.load(target_ptr + row).to(tl.int64)
    page = tl.load(cache_ptr + source * page_elements + element, mask=mask)
    tl.store(cache_ptr + target * page_elements + element, page, mask=mask)


def needs_wide(cache: Tensor) -> bool:
    """Whether element offsets into the cache exceed 32 bits; narrower offsets save registers."""
    return cache.numel() >= 2**31


def write_kv(k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, slots: Tensor) -> None:
    tokens, heads, key_size = k.shape
    value_size = v.shape[2]
    if tokens == 0:
        return
    _write_kv_kernel[(tokens,)](
        k, v, k_cache, v_cache, slots,
        k.stride(0), k.stride(1), v.stride(0), v.stride(1),
        key_size, heads * key_size, value_size, heads * value_size,
        BLOCK=triton.next_power_of_2(heads * max(key_size, value_size)), num_warps=4,
    )  # fmt: skip


def copy_pages(cache: Tensor, source: Tensor, target: Tensor) -> None:
    if source.numel() == 0:
        return
    elements = cache[0].numel()
    _copy_pages_kernel[(source.numel(), triton.cdiv(elements, _COPY_BLOCK))](
        cache, source, target, elements, BLOCK=_COPY_BLOCK, num_warps=8
    )
