"""Query and key norm (RMSNorm), RoPE and cache write in one launch."""

# ruff: noqa: PLR0917 - a kernel takes pointers and strides; its docstring is its formula


# mypy: disable-error-code="no-untyped-def"

import triton
import triton.language as tl
from torch import Tensor

from yaie_kernels.triton.launch import await_previous, dependent


@triton.jit
def _qk_norm_rope_write_kernel(
    q_ptr, k_ptr, v_ptr, q_weight_ptr, k_weight_ptr, positions_ptr, cos_sin_ptr,
    k_cache_ptr, v_cache_ptr, slots_ptr,
    q_token_stride, q_head_stride, k_token_stride, k_head_stride, v_token_stride, v_head_stride,
    q_heads, kv_heads, head_dim, half, eps, offset,
    HAS_NORM: tl.constexpr, BLOCK_HEADS: tl.constexpr, BLOCK_HALF: tl.constexpr,
    BLOCK_REST: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Q <- rope(norm(q)) in place, k_cache[slot] <- rope(norm(k)), v_cache[slot] <- v.

    Rows are the q heads, k heads and v heads of one token. A row is (left | right | rest), where
    the rest is not rotated; BLOCK_REST is 0 if there is no rest.
    """
    await_previous(PDL)
    token = tl.program_id(0).to(tl.int64)
    position = tl.load(positions_ptr + token)
    slot = tl.load(slots_ptr + token)
    col = tl.arange(0, BLOCK_HALF)
    live = col < half
    row = tl.program_id(1) * BLOCK_HEADS + tl.arange(0, BLOCK_HEADS)
    is_q = row < q_heads
    is_v = row >= q_heads + kv_heads
    k_head = row - q_heads
    v_head = row - q_heads - kv_heads

    q_row = q_ptr + token * q_token_stride + row * q_head_stride
    k_row = k_ptr + token * k_token_stride + k_head * k_head_stride
    v_row = v_ptr + token * v_token_stride + v_head * v_head_stride
    source_row = tl.where(is_q, q_row, tl.where(is_v, v_row, k_row))[:, None]
    cache_row = slot * kv_heads * head_dim
    k_target = k_cache_ptr + cache_row + k_head * head_dim
    v_target = v_cache_ptr + cache_row + v_head * head_dim
    target_row = tl.where(is_q, q_row, tl.where(is_v, v_target, k_target))[:, None]
    weight_row = tl.where(is_q, q_weight_ptr, k_weight_ptr)[:, None]
    source, target = source_row + col[None, :], target_row + col[None, :]

    is_row = (row < q_heads + 2 * kv_heads)[:, None]
    mask = is_row & live[None, :]
    raw_left = tl.load(source, mask=mask, other=0.0)
    raw_right = tl.load(source + half, mask=mask, other=0.0)
    left = raw_left.to(tl.float32)
    right = raw_right.to(tl.float32)
    if BLOCK_REST > 0:
        rest_col = 2 * half + tl.arange(0, BLOCK_REST)
        rest_mask = is_row & (rest_col < head_dim)[None, :]
        raw_rest = tl.load(source_row + rest_col[None, :], mask=rest_mask, other=0.0)
    if HAS_NORM:
        square = tl.sum(left * left, axis=1) + tl.sum(right * right, axis=1)
        if BLOCK_REST > 0:
            rest = raw_rest.to(tl.float32)
            square += tl.sum(rest * rest, axis=1)
        scale = (1.0 / tl.sqrt(square / head_dim + eps))[:, None]
        weight = weight_row + col[None, :]
        # rounded to the activation's dtype, as by the separate norm
        left = left * scale * (tl.load(weight, mask=mask, other=0.0).to(tl.float32) + offset)
        right = (
            right * scale * (tl.load(weight + half, mask=mask, other=0.0).to(tl.float32) + offset)
        )
        left = left.to(raw_left.dtype).to(tl.float32)
        right = right.to(raw_left.dtype).to(tl.float32)
    angle = cos_sin_ptr + position * 2 * half + col
    cos = tl.load(angle, mask=live, other=0.0)[None, :]
    sin = tl.load(angle + half, mask=live, other=0.0)[None, :]
    turned_left = (left * cos - right * sin).to(raw_left.dtype)
    turned_right = (right * cos + left * sin).to(raw_left.dtype)
    tl.store(target, tl.where(is_v[:, None], raw_left, turned_left), mask=mask)
    tl.store(target + half, tl.where(is_v[:, None], raw_right, turned_right), mask=mask)
    if BLOCK_REST > 0:
        if HAS_NORM:
            rest_weight = tl.load(weight_row + rest_col[None, :], mask=rest_mask, other=0.0)
            rest = rest * scale * (rest_weight.to(tl.float32) + offset)
            raw_rest = tl.where(is_v[:, None], raw_rest, rest.to(raw_rest.dtype))
        tl.store(target_row + rest_col[None, :], raw_rest, mask=rest_mask)


def qk_norm_rope_write(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_weight: Tensor | None,
    k_weight: Tensor | None,
    eps: float,
    positions: Tensor,
    cos_sin: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    slots: Tensor,
    offset: float = 0.0,
) -> None:
    tokens, q_heads, head_dim = q.shape
    kv_heads = k.shape[1]
    if tokens == 0:
        return
    half = cos_sin.shape[1] // 2
    rest = head_dim - 2 * half
    block_half = triton.next_power_of_2(half)
    rows = q_heads + 2 * kv_heads
    block_heads = 4 if tokens <= 64 else min(16, triton.next_power_of_2(rows))
    has_norm = q_weight is not None
    _qk_norm_rope_write_kernel[(tokens, triton.cdiv(rows, block_heads))](
        q, k, v, q_weight if has_norm else q, k_weight if has_norm else q,
        positions, cos_sin, k_cache, v_cache, slots,
        q.stride(0), q.stride(1), k.stride(0), k.stride(1), v.stride(0), v.stride(1),
        q_heads, kv_heads, head_dim, half, eps, offset,
        HAS_NORM=has_norm, BLOCK_HEADS=block_heads, BLOCK_HALF=block_half,
        BLOCK_REST=triton.next_power_of_2(rest) if rest else 0, **dependent(q),
        num_warps=4,
    )  # fmt: skip
