"""The step between latent attention's projections and its cache, as its separate operations."""

# ruff: noqa: PLR0917 - the operations' signatures are positional by contract

import torch
from torch import Tensor

from yaie_kernels.reference.elementwise import rms_norm


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
    compressed, shared = latent.tensor_split((weight.shape[0],), dim=1)
    shared = shared.clone()
    rows = cos_sin.index_select(0, positions).unsqueeze(1)  # [T, 1, R]
    _rotate(q, rows, interleaved=interleaved)
    _rotate(shared.unsqueeze(1), rows, interleaved=interleaved)
    kept = torch.cat((rms_norm(compressed, weight, eps), shared), dim=1)
    cache.flatten(0, 2).index_copy_(0, slots, kept)


def _rotate(x: Tensor, rows: Tensor, *, interleaved: bool) -> None:
    """x[T,H,R] *= rotation, in float32 at least."""
    half = x.shape[-1] // 2
    cos, sin = rows.tensor_split(2, dim=-1)
    left, right = (x[..., 0::2], x[..., 1::2]) if interleaved else (x[..., :half], x[..., half:])
    turned = left * cos - right * sin
    right.copy_(right * cos + left * sin)
    left.copy_(turned)
