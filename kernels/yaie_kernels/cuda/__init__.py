"""Operations with C++ and CUDA versions, which a built library registers as `torch.ops.yaie`.

Importing this module neither compiles nor loads: `build.build` compiles, `build.load` loads.
Signatures are those of `yaie_kernels.ops`; `yaie_kernels.limits` says which arguments are accepted.
"""

# ruff: noqa: PLR0917 - the operations' signatures are positional by contract

import torch
from torch import Tensor

from yaie_kernels.cuda.flash import flash_attention

__all__ = [
    "add_rms_norm",
    "copy_pages",
    "flash_attention",
    "paged_attention",
    "rms_norm",
    "rope_",
    "silu_mul",
    "swap_pages",
]


def rms_norm(x: Tensor, weight: Tensor, eps: float, offset: float = 0.0) -> Tensor:
    out: Tensor = torch.ops.yaie.rms_norm.default(x, weight, eps, offset)
    return out


def add_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float, offset: float = 0.0
) -> tuple[Tensor, Tensor]:
    out: tuple[Tensor, Tensor] = torch.ops.yaie.add_rms_norm.default(
        x, residual, weight, eps, offset
    )
    return out


def rope_(q: Tensor, k: Tensor, positions: Tensor, cos_sin: Tensor) -> None:
    torch.ops.yaie.rope_.default(q, k, positions, cos_sin)


def silu_mul(gate_up: Tensor) -> Tensor:
    out: Tensor = torch.ops.yaie.silu_mul.default(gate_up)
    return out


def copy_pages(cache: Tensor, source: Tensor, target: Tensor) -> None:
    torch.ops.yaie.copy_blocks.default([cache], source, target)


def swap_pages(source_cache: Tensor, target_cache: Tensor, source: Tensor, target: Tensor) -> None:
    torch.ops.yaie.swap_blocks.default(source_cache, target_cache, source, target)


def paged_attention(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_tables: Tensor,
    seq_lens: Tensor,
    query_start: Tensor,
    *,
    scale: float,
    max_query_len: int,  # noqa: ARG001 - one query per sequence
    max_seq_len: int,
    window: int | None = None,
    softcap: float | None = None,
    rows: Tensor | None = None,
    out: Tensor | None = None,
    splits: int | None = None,
) -> Tensor:
    """Decode only. `splits` overrides the number of parts of each sequence, for tuning."""
    tables = block_tables if rows is None else block_tables.index_select(0, rows)
    computed: Tensor = torch.ops.yaie.paged_attention.default(
        q, k_cache, v_cache, tables, seq_lens, scale, max_seq_len, window, softcap, splits
    )
    if out is None:
        return computed
    padding = (seq_lens == 0) | (query_start[1:] == query_start[:-1])
    return out.copy_(torch.where(padding[:, None, None], out, computed))
