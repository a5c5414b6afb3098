"""Every operation of the engine: a torch reference that is also the CPU backend, and Triton."""

from yaie_kernels.ops import (
    add_rms_norm,
    copy_pages,
    moe_mlp,
    paged_attention,
    qk_norm_rope_write,
    rms_norm,
    rope_,
    sample,
    silu_mul,
    write_kv,
)

__all__ = [
    "add_rms_norm",
    "copy_pages",
    "moe_mlp",
    "paged_attention",
    "qk_norm_rope_write",
    "rms_norm",
    "rope_",
    "sample",
    "silu_mul",
    "write_kv",
]
