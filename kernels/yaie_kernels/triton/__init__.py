"""Triton kernels, one file or folder per family: the kernel, its formula, and its launcher.

Launchers take the same arguments as the reference. They choose grids only from shapes and host
integers and never read a tensor's contents, so CUDA graphs can capture all of them.
"""

from yaie_kernels.triton.attention.attend import paged_attention
from yaie_kernels.triton.attention.cache import copy_pages, write_kv
from yaie_kernels.triton.attention.latent import latent_norm_rope_write
from yaie_kernels.triton.elementwise import (
    add_rms_norm,
    gelu_tanh_mul,
    rms_norm,
    rope_,
    silu_mul,
)
from yaie_kernels.triton.fused import qk_norm_rope_write
from yaie_kernels.triton.moe import moe_mlp
from yaie_kernels.triton.projection.linear import linear, norm_linear
from yaie_kernels.triton.route import route_experts
from yaie_kernels.triton.sampling.adjust import add_biases_, adjust_logits, ban_words_, remember_
from yaie_kernels.triton.sampling.sample import greedy, sample
from yaie_kernels.triton.sampling.scores import score_tokens

__all__ = [
    "add_biases_",
    "add_rms_norm",
    "adjust_logits",
    "ban_words_",
    "copy_pages",
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
    "write_kv",
]
