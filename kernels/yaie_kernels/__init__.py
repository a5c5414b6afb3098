"""Every operation of the engine: a torch reference that is also the CPU backend, and Triton."""

from yaie_kernels.ops import (
    add_biases_,
    add_rms_norm,
    adjust_logits,
    ban_words_,
    copy_pages,
    gelu_tanh_mul,
    latent_norm_rope_write,
    moe_mlp,
    paged_attention,
    qk_norm_rope_write,
    remember_,
    rms_norm,
    rope_,
    sample,
    silu_mul,
    write_kv,
)

__all__ = [
    "add_biases_",
    "add_rms_norm",
    "adjust_logits",
    "ban_words_",
    "copy_pages",
    "gelu_tanh_mul",
    "latent_norm_rope_write",
    "moe_mlp",
    "paged_attention",
    "qk_norm_rope_write",
    "remember_",
    "rms_norm",
    "rope_",
    "sample",
    "silu_mul",
    "write_kv",
]
