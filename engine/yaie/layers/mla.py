"""Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1): the keys and values of
all heads are computed from one small latent vector per token.

    x ─ q projections ───────────────▶ q = (q_nope | q_rope), every head
    x ─ kv_a ─▶ latent (c | r) ─ norm(c), rope(r) ─▶ k = (k_nope | r), v;  (k_nope | v) = kv_b(c)

This module has the projections; `mla_forms` has the attention between them.
"""

import torch

from yaie.layers.attention import StepInput
from yaie.layers.linear import Linear
from yaie.layers.mla_forms import FORMS, LATENT_NORM_EPS, Form, LatentCore
from yaie.layers.norm import RMSNorm
from yaie.layers.options import NamedTensors, TensorOptions
from yaie.model_config.decoder_config import ModelConfig
from yaie.model_config.moe import MLAConfig


class LatentAttention:
    """The projections before and after one of the forms of `mla_forms`."""

    def __init__(
        self,
        config: ModelConfig,
        mla: MLAConfig,
        index: int,
        cos_sin: torch.Tensor,
        options: TensorOptions,
    ) -> None:
        self.mla, self.heads = mla, config.num_heads
        q_size = config.num_heads * mla.qk_head_dim
        rank = mla.q_lora_rank
        first = {"q_proj": q_size} if rank is None else {"q_a_proj": rank}
        self.down = Linear(
            config.hidden_size,
            first | {"kv_a_proj_with_mqa": mla.latent_size},
            bias=mla.bias,
            options=options,
        )
        self.q_norm = None if rank is None else RMSNorm(rank, LATENT_NORM_EPS, options=options)
        self.q_up = (
            None
            if rank is None
            else Linear(rank, {"q_b_proj": q_size}, bias=False, options=options)
        )
        self.core = LatentCore(config, mla, cos_sin, options)
        self.form: Form = FORMS[mla.form](self.core, index)
        self.cache = self.form.cache
        self.out = Linear(
            config.num_heads * mla.v_head_dim,
            {"o_proj": config.hidden_size},
            bias=mla.bias,
            options=options,
        )

    def after(
        self, norm: RMSNorm, x: torch.Tensor, residual: torch.Tensor | None, step: StepInput
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (attention(norm(x + residual)), x + residual), all [T, hidden]."""
        both, residual = self.down.after(norm, x, residual)
        q, latent = both.tensor_split((-self.mla.latent_size,), dim=1)
        if self.q_norm is not None and self.q_up is not None:
            q = self.q_up(self.q_norm(q))
        heads = q.view(-1, self.heads, self.mla.qk_head_dim)
        return self.out(self.form(heads, latent, step).flatten(1)), residual

    def parameters(self, prefix: str) -> NamedTensors:
        """Checkpoint names and destinations."""
        yield from self.down.parameters(prefix)
        if self.q_norm is not None and self.q_up is not None:
            yield from self.q_norm.parameters(f"{prefix}q_a_layernorm")
            yield from self.q_up.parameters(prefix)
        yield from self.core.norm.parameters(f"{prefix}kv_a_layernorm")
        yield from self.core.kv_b.parameters(prefix)
        yield from self.out.parameters(prefix)
