"""The step between the fused projection and attention, as its separate operations."""

# ruff: noqa: PLR0917 - the operations' signatures are positional by contract

from torch import Tensor

from yaie_kernels.reference.attention.cache import write_kv
from yaie_kernels.reference.elementwise import rms_norm, rope_


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
    if q_weight is not None and k_weight is not None:
        q.copy_(rms_norm(q, q_weight, eps, offset))
        k = rms_norm(k, k_weight, eps, offset)
    rope_(q, k, positions, cos_sin)
    write_kv(k, v, k_cache, v_cache, slots)
