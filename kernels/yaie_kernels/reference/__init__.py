"""Torch reference of every operation, and at the same time the CPU backend of the engine.

It runs on any device and dtype, which makes it the definition that kernels are judged against
(in float64) and the thing that serves a model where there is no GPU (in float32).
"""

from yaie_kernels.reference.attention.attend import paged_attention
from yaie_kernels.reference.attention.cache import copy_pages, swap_pages, write_kv
from yaie_kernels.reference.attention.flash import flash_attention
from yaie_kernels.reference.attention.latent import latent_norm_rope_write
from yaie_kernels.reference.elementwise import (
    add_rms_norm,
    gelu_tanh_mul,
    rms_norm,
    rope_,
    silu_mul,
)
from yaie_kernels.reference.fused import qk_norm_rope_write
from yaie_kernels.reference.linear import linear, norm_linear
from yaie_kernels.reference.moe import moe_mlp
from yaie_kernels.reference.route import route_experts
from yaie_kernels.reference.sampling.adjust import add_biases_, adjust_logits, ban_words_, remember_
from yaie_kernels.reference.sampling.sample import greedy, sample
from yaie_kernels.reference.sampling.scores import score_tokens

__all__ = [
    "add_biases_",
    "add_rms_norm",
    "adjust_logits",
    "ban_words_",
    "copy_pages",
    "flash_attention",
    "gelu_tanh_mul",
    "greedy",
    "latent_norm_rope_write",
    "linear",
    "moe_mlp",
    "norm_linear",
    "paged_attention",
    "qk_norm_rope_write",
    "remember_",
    "rms_norm",
    "rope_",
    "route_experts",
    "sample",
    "score_tokens",
    "silu_mul",
    "swap_pages",
    "write_kv",
]
