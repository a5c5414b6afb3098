"""Paged attention: chooses between the decode kernels and the extend kernel."""

# ruff: noqa: PLR0917 - the operations' signatures are positional by contract

from torch import Tensor

from yaie_kernels.triton.attention.decode import decode
from yaie_kernels.triton.attention.extend import extend


def paged_attention(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_tables: Tensor,
    seq_lens: Tensor,
    query_start: Tensor,
    *,
    scale: float,
    max_query_len: int,
    max_seq_len: int,
    window: int | None = None,
    softcap: float | None = None,
    rows: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    if max_query_len == 1:
        return decode(
            q, k_cache, v_cache, block_tables, seq_lens, query_start,
            scale=scale, max_seq_len=max_seq_len, window=window, softcap=softcap,
            rows=rows, out=out,
        )  # fmt: skip
    return extend(
        q, k_cache, v_cache, block_tables, seq_lens, query_start,
        scale=scale, window=window, softcap=softcap, rows=rows, out=out,
    )  # fmt: skip
