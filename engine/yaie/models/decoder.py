"""A decoder layer and its parts: attention and a gated MLP, each with a norm before it.

A sublayer's output is not added to the residual stream at once. It is passed with the residual to
the next sublayer, where sum, norm and first projection are one operation. Differences between
families are options of `ModelConfig`, or small subclasses in the family's module.
"""

import torch

import yaie_kernels as ops
from yaie.layers.attention import PagedAttention, StepInput
from yaie.layers.interfaces import FeedForward, LayerCache, Mixer
from yaie.layers.linear import Linear
from yaie.layers.norm import RMSNorm
from yaie.layers.options import NamedTensors, TensorOptions
from yaie.model_config.decoder_config import ModelConfig

GATES: dict[str, ops.Gate] = {"silu": "silu", "gelu_pytorch_tanh": "gelu_tanh"}


def make_norm(config: ModelConfig, options: TensorOptions, size: int | None = None) -> RMSNorm:
    """Return a norm with the model's options over `size` (None: the hidden size)."""
    return RMSNorm(
        size or config.hidden_size, config.rms_norm_eps, offset=config.norm_offset, options=options
    )


class Attention:
    """Projections, optional norms of each query and key head, rotation, paged attention."""

    def __init__(
        self, config: ModelConfig, index: int, cos_sin: torch.Tensor, options: TensorOptions
    ) -> None:
        self.heads = (config.num_heads, config.num_kv_heads, config.num_kv_heads)
        self.sizes = [config.q_size, config.kv_size, config.kv_size]
        self.head_dim = size = config.head_dim
        self.qkv = Linear(
            config.hidden_size, self.qkv_parts(), bias=config.qkv_bias, options=options
        )
        self.out = Linear(
            config.q_size, {"o_proj": config.hidden_size}, bias=config.out_bias, options=options
        )
        self.head_norms = self._head_norms(config, options)
        self.cache = LayerCache(config.num_kv_heads, size, size, config.windows[index])
        self.attention = PagedAttention(
            index,
            config.attention_scale,
            cos_sin,
            head_norms=self.head_norms,
            window=config.windows[index],
            softcap=config.attention_softcap,
        )

    def qkv_parts(self) -> dict[str, int]:
        """The checkpoint's matrices in the fused projection, with their numbers of rows."""
        return dict(zip(("q_proj", "k_proj", "v_proj"), self.sizes, strict=True))

    @staticmethod
    def _head_norms(config: ModelConfig, options: TensorOptions) -> tuple[RMSNorm, RMSNorm] | None:
        if not config.qk_norm:
            return None
        size = config.head_dim
        return make_norm(config, options, size), make_norm(config, options, size)

    def after(
        self, norm: RMSNorm, x: torch.Tensor, residual: torch.Tensor | None, step: StepInput
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (attention(norm(x + residual)), x + residual), all [T, hidden]."""
        qkv, residual = self.qkv.after(norm, x, residual)
        parts = torch.split(qkv, self.sizes, dim=1)
        q, k, v = (
            part.view(-1, heads, self.head_dim)
            for part, heads in zip(parts, self.heads, strict=True)
        )
        return self.out(self.attention(q, k, v, step)), residual

    def parameters(self, prefix: str) -> NamedTensors:
        """Checkpoint names and destinations."""
        yield from self.qkv.parameters(prefix)
        yield from self.out.parameters(prefix)
        if self.head_norms is not None:
            yield from self.head_norms[0].parameters(f"{prefix}q_norm")
            yield from self.head_norms[1].parameters(f"{prefix}k_norm")


class MLP:
    """Gated MLP: down(act(gate(x)) * up(x)). `inner`: the intermediate width.

    SwiGLU and GEGLU: Shazeer 2020 (arXiv:2002.05202).
    """

    def __init__(self, config: ModelConfig, inner: int, options: TensorOptions) -> None:
        bias = config.mlp_bias
        self.gate_up = Linear(
            config.hidden_size,
            self.gate_up_parts(inner),
            bias=bias,
            gate=GATES[config.activation],
            options=options,
        )
        self.down = Linear(inner, {"down_proj": config.hidden_size}, bias=bias, options=options)

    @staticmethod
    def gate_up_parts(inner: int) -> dict[str, int]:
        """The checkpoint's matrices in the first projection, with their numbers of rows."""
        return {"gate_proj": inner, "up_proj": inner}

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Map x [T, hidden] to [T, hidden]."""
        return self.down(self.gate_up(x))

    def after(
        self, norm: RMSNorm, x: torch.Tensor, residual: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (self(norm(x + residual)), x + residual), all [T, hidden]."""
        inner, residual = self.gate_up.after(norm, x, residual)
        return self.down(inner), residual

    def parameters(self, prefix: str) -> NamedTensors:
        """Checkpoint names and destinations."""
        yield from self.gate_up.parameters(prefix)
        yield from self.down.parameters(prefix)


class DecoderLayer:
    """Attention and MLP, each with a norm before it (pre-norm)."""

    def __init__(
        self, config: ModelConfig, attention: Mixer, mlp: FeedForward, options: TensorOptions
    ) -> None:
        self.attention_norm = make_norm(config, options)
        self.attention = attention
        self.mlp_norm = make_norm(config, options)
        self.mlp = mlp

    def __call__(
        self, x: torch.Tensor, residual: torch.Tensor | None, step: StepInput
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Run the layer; x [T, hidden] is the last output, not yet added to `residual`.

        Returns the same pair for the next layer.
        """
        x, residual = self.attention.after(self.attention_norm, x, residual, step)
        return self.mlp.after(self.mlp_norm, x, residual)

    def parameters(self, prefix: str) -> NamedTensors:
        """Checkpoint names and destinations."""
        yield from self.attention_norm.parameters(f"{prefix}input_layernorm")
        yield from self.attention.parameters(f"{prefix}self_attn.")
        yield from self.mlp_norm.parameters(f"{prefix}post_attention_layernorm")
        yield from self.mlp.parameters(f"{prefix}mlp.")
