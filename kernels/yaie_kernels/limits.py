"""Predicates for operations whose backend does not accept all arguments; `registry` calls them."""

# ruff: noqa: PLR0917, ARG001 - predicates take the operations' own arguments

from collections.abc import Callable

from torch import Tensor

_CUDA_HEADS = (64, 128, 256)


def _norm(x: Tensor, weight: Tensor, eps: float, offset: float = 0.0) -> bool:
    return weight.dtype == x.dtype


def _add_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float, offset: float = 0.0) -> bool:
    return x.dtype == residual.dtype == weight.dtype


def _plain_norm(x: Tensor, weight: Tensor, eps: float, offset: float = 0.0) -> bool:
    return offset == 0 and weight.dtype == x.dtype


def _decode(
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
) -> bool:
    return (
        max_query_len == 1
        and q.shape[0] == seq_lens.shape[0]
        and k_cache.shape == v_cache.shape
        and v_cache.is_contiguous()
        and (not q.is_cuda or q.shape[2] in _CUDA_HEADS)
    )


def _dense(q: Tensor, k: Tensor, v: Tensor, *, scale: float, causal: bool) -> bool:
    return not q.is_cuda or q.shape[3] in _CUDA_HEADS


def _square(q: Tensor, k: Tensor, v: Tensor, *, scale: float, causal: bool) -> bool:
    return not causal or q.shape[2] == k.shape[2]  # torch aligns a causal mask with the first key


LIMITS: dict[tuple[str, str], Callable[..., bool]] = {
    ("cuda", "rms_norm"): _norm,
    ("cuda", "add_rms_norm"): _add_norm,
    ("cuda", "paged_attention"): _decode,
    ("cuda", "flash_attention"): _dense,
    ("library", "rms_norm"): _plain_norm,
    ("library", "flash_attention"): _square,
}
