"""Shapes and dtypes of the operations' results, for tracing without data (torch.compile)."""

# ruff: noqa: PLR0917, ARG001 - fakes take the operations' own arguments

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def register() -> None:
    """Register the fake versions of the loaded library's operations with torch."""
    for operation, fake in _FAKES.items():
        torch.library.register_fake(f"yaie::{operation}", fake)


def _like(x: Tensor) -> Tensor:
    return x.new_empty(x.shape)


def _rms_norm(x: Tensor, weight: Tensor, eps: float, offset: float = 0.0) -> Tensor:
    return _like(x)


def _add_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float, offset: float = 0.0
) -> tuple[Tensor, Tensor]:
    return _like(x), _like(x)


def _silu_mul(gate_up: Tensor) -> Tensor:
    return gate_up.new_empty(gate_up.shape[0], gate_up.shape[1] // 2)


def _in_place(*args: object) -> None:
    """The fake of operations that only write into their arguments."""


def _paged_attention(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_tables: Tensor,
    seq_lens: Tensor,
    scale: float,
    max_seq_len: int,
    window: int | None = None,
    softcap: float | None = None,
    splits: int | None = None,
) -> Tensor:
    return _like(q)


def _flash_attention_forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    causal: bool,  # noqa: FBT001 - as in the schema
) -> tuple[Tensor, Tensor]:
    dtype = torch.float64 if q.dtype == torch.float64 else torch.float32
    return _like(q), q.new_empty(q.shape[:3], dtype=dtype)


def _flash_attention_backward(
    grad_out: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    scale: float,
    causal: bool,  # noqa: FBT001 - as in the schema
) -> tuple[Tensor, Tensor, Tensor]:
    return _like(q), _like(k), _like(v)


_FAKES: dict[str, Callable[..., Any]] = {
    "rms_norm": _rms_norm,
    "add_rms_norm": _add_rms_norm,
    "rope_": _in_place,
    "silu_mul": _silu_mul,
    "copy_blocks": _in_place,
    "swap_blocks": _in_place,
    "paged_attention": _paged_attention,
    "flash_attention_forward": _flash_attention_forward,
    "flash_attention_backward": _flash_attention_backward,
}
