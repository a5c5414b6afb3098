"""Norm, RoPE and cache write of multi-head latent attention in one launch.

DeepSeek-V2 (arXiv:2405.04434, section 2.1); `ops.latent_norm_rope_write` says what is computed.
"""

# ruff: noqa: PLR0917, D403 - a kernel takes pointers and strides; its docstring is its formula


# mypy: disable-error-code="no-untyped-def"

import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _latent_norm_rope_write_kernel(
    q_ptr, latent_ptr, weight_ptr, positions_ptr, cos_sin_ptr, cache_ptr, slots_ptr,
    q_token_stride, q_head_stride, latent_stride, q_heads, rank, half, step, pair, eps,
    BLOCK_HEADS: tl.constexpr, BLOCK_HALF: tl.constexpr, BLOCK_RANK: tl.constexpr,
):  # fmt: skip
    """q <- rope(q) by blocks of heads; cache[slot] <- (rms_norm(c) | rope(r)).

    r is treated as one more head after the last; the token's program 0 computes the norm. Pair i is
    at columns i * step and i * step + pair.
    """
    token = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    position = tl.load(positions_ptr + token)
    row = cache_ptr + tl.load(slots_ptr + token) * (rank + 2 * half)
    latent = latent_ptr + token * latent_stride

    col = tl.arange(0, BLOCK_HALF)
    live = col < half
    angle = cos_sin_ptr + position * 2 * half + col
    cos = tl.load(angle, mask=live, other=0.0)[None, :]
    sin = tl.load(angle + half, mask=live, other=0.0)[None, :]
    head = block * BLOCK_HEADS + tl.arange(0, BLOCK_HEADS)
    is_q = head < q_heads
    q_row = q_ptr + token * q_token_stride + head * q_head_stride
    source = tl.where(is_q, q_row, latent + rank)[:, None] + (col * step)[None, :]
    target = tl.where(is_q, q_row, row + rank)[:, None] + (col * step)[None, :]
    mask = (head <= q_heads)[:, None] & live[None, :]
    left = tl.load(source, mask=mask, other=0.0).to(tl.float32)
    right = tl.load(source + pair, mask=mask, other=0.0).to(tl.float32)
    tl.store(target, left * cos - right * sin, mask=mask)
    tl.store(target + pair, right * cos + left * sin, mask=mask)

    if block == 0:
        element = tl.arange(0, BLOCK_RANK)
        inside = element < rank
        c = tl.load(latent + element, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + element, mask=inside, other=0.0).to(tl.float32)
        scale = 1.0 / tl.sqrt(tl.sum(c * c, axis=0) / rank + eps)
        tl.store(row + element, c * scale * weight, mask=inside)


def latent_norm_rope_write(
    q: Tensor,
    latent: Tensor,
    weight: Tensor,
    eps: float,
    positions: Tensor,
    cos_sin: Tensor,
    cache: Tensor,
    slots: Tensor,
    *,
    interleaved: bool,
) -> None:
    tokens, q_heads, size = q.shape
    if tokens == 0:
        return
    rank, half = weight.shape[0], size // 2
    step, pair = (2, 1) if interleaved else (1, half)
    block_heads = min(16, triton.next_power_of_2(q_heads + 1))
    _latent_norm_rope_write_kernel[(tokens, triton.cdiv(q_heads + 1, block_heads))](
        q, latent, weight, positions, cos_sin, cache, slots,
        q.stride(0), q.stride(1), latent.stride(0), q_heads, rank, half, step, pair, eps,
        BLOCK_HEADS=block_heads, BLOCK_HALF=triton.next_power_of_2(half),
        BLOCK_RANK=triton.next_power_of_2(rank), num_warps=4,
    )  # fmt: skip
