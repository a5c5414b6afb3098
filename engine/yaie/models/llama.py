"""Llama: pre-norm decoder with rotary attention and a gated MLP. Qwen3 differs by head norms only.

Order of the code is order of execution: embed, layers (norm, attention, norm, MLP), final norm,
logits. The residual stream travels beside the normed input so that add and norm are one kernel.
"""

import torch

import yaie_kernels as ops
from yaie.layers.attention import PagedAttention, StepInput
from yaie.layers.embedding import Embedding, LMHead
from yaie.layers.linear import Linear
from yaie.layers.norm import RMSNorm
from yaie.layers.options import NamedTensors, TensorOptions
from yaie.layers.rotary import angle_table
from yaie.models.config import ModelConfig
from yaie.models.model import LayerCache


class Attention:
    """Projections, optional norms of each query and key head, rotation, paged attention."""

    def __init__(
        self, config: ModelConfig, index: int, cos_sin: torch.Tensor, options: TensorOptions
    ) -> None:
        self.heads = (config.num_heads, config.num_kv_heads, config.num_kv_heads)
        self.sizes = [config.q_size, config.kv_size, config.kv_size]
        self.head_dim = config.head_dim
        parts = dict(zip(("q_proj", "k_proj", "v_proj"), self.sizes, strict=True))
        bias = config.attention_bias
        self.qkv = Linear(config.hidden_size, parts, bias=bias, options=options)
        self.out = Linear(config.q_size, {"o_proj": config.hidden_size}, bias=bias, options=options)
        self.head_norms = self._head_norms(config, options)
        self.attention = PagedAttention(
            index,
            config.head_dim,
            cos_sin,
            head_norms=self.head_norms,
            window=config.windows[index],
        )

    @staticmethod
    def _head_norms(config: ModelConfig, options: TensorOptions) -> tuple[RMSNorm, RMSNorm] | None:
        if not config.qk_norm:
            return None
        size, eps = config.head_dim, config.rms_norm_eps
        return RMSNorm(size, eps, options=options), RMSNorm(size, eps, options=options)

    def __call__(self, x: torch.Tensor, step: StepInput) -> torch.Tensor:
        """Map x [T, hidden] to [T, hidden]."""
        parts = torch.split(self.qkv(x), self.sizes, dim=1)
        q, k, v = (
            part.view(-1, heads, self.head_dim)
            for part, heads in zip(parts, self.heads, strict=True)
        )
        return self.out(self.attention(q, k, v, step))

    def parameters(self, prefix: str) -> NamedTensors:
        """Checkpoint names and destinations."""
        yield from self.qkv.parameters(prefix)
        yield from self.out.parameters(prefix)
        if self.head_norms is not None:
            yield from self.head_norms[0].parameters(f"{prefix}q_norm")
            yield from self.head_norms[1].parameters(f"{prefix}k_norm")


class MLP:
    """down(silu(gate(x)) * up(x))."""

    def __init__(self, config: ModelConfig, options: TensorOptions) -> None:
        inner, bias = config.intermediate_size, config.mlp_bias
        parts = {"gate_proj": inner, "up_proj": inner}
        self.gate_up = Linear(config.hidden_size, parts, bias=bias, options=options)
        self.down = Linear(inner, {"down_proj": config.hidden_size}, bias=bias, options=options)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Map x [T, hidden] to [T, hidden]."""
        return self.down(ops.silu_mul(self.gate_up(x)))

    def parameters(self, prefix: str) -> NamedTensors:
        """Checkpoint names and destinations."""
        yield from self.gate_up.parameters(prefix)
        yield from self.down.parameters(prefix)


class DecoderLayer:
    """Attention and MLP, each behind its norm."""

    def __init__(
        self, config: ModelConfig, index: int, cos_sin: torch.Tensor, options: TensorOptions
    ) -> None:
        size, eps = config.hidden_size, config.rms_norm_eps
        self.attention_norm = RMSNorm(size, eps, options=options)
        self.attention = Attention(config, index, cos_sin, options)
        self.mlp_norm = RMSNorm(size, eps, options=options)
        self.mlp = MLP(config, options)

    def __call__(
        self, x: torch.Tensor, residual: torch.Tensor | None, step: StepInput
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Run x [T, hidden], the last sublayer's output not yet added to `residual`."""
        if residual is None:
            x, residual = self.attention_norm(x), x
        else:
            x, residual = self.attention_norm.add(x, residual)
        x, residual = self.mlp_norm.add(self.attention(x, step), residual)
        return self.mlp(x), residual

    def parameters(self, prefix: str) -> NamedTensors:
        """Checkpoint names and destinations."""
        yield from self.attention_norm.parameters(f"{prefix}input_layernorm")
        yield from self.attention.parameters(f"{prefix}self_attn.")
        yield from self.mlp_norm.parameters(f"{prefix}post_attention_layernorm")
        yield from self.mlp.parameters(f"{prefix}mlp.")


class Llama:
    """The whole model. `max_positions`: length of the rotary table (the longest sequence)."""

    def __init__(self, config: ModelConfig, options: TensorOptions, max_positions: int) -> None:
        self.config = config
        self.options = options
        self.architecture = config.architecture
        self.vocab_size = config.vocab_size
        self.hidden_size = config.hidden_size
        self.num_labels = 0
        self.caches = tuple(
            LayerCache(config.num_kv_heads, config.head_dim, config.head_dim, window)
            for window in config.windows
        )
        self.embedding = Embedding(config.vocab_size, config.hidden_size, options=options)
        table = angle_table(config.rope, config.head_dim, max_positions).to(options.device)
        self.layers = [DecoderLayer(config, i, table, options) for i in range(config.num_layers)]
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps, options=options)
        self.head = LMHead(
            config.vocab_size,
            config.hidden_size,
            tied=self.embedding if config.tie_word_embeddings else None,
            options=options,
        )

    def forward(self, ids: torch.Tensor, step: StepInput) -> torch.Tensor:
        """Ids [T] int64 -> hidden states [T, hidden] after the final norm."""
        x, residual = self.layers[0](self.embedding(ids), None, step)
        for layer in self.layers[1:]:
            x, residual = layer(x, residual, step)
        return self.norm.add(x, residual)[0]

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Hidden [N, hidden] -> [N, vocab] in the model's dtype."""
        return self.head(hidden)

    def classify(self, hidden: torch.Tensor) -> torch.Tensor:
        """Refuse: this model has no classes."""
        raise NotImplementedError(f"{self.architecture} has no classes")

    def parameters(self) -> NamedTensors:
        """Every tensor of the checkpoint and where it goes."""
        yield from self.embedding.parameters("model.embed_tokens")
        for i, layer in enumerate(self.layers):
            yield from layer.parameters(f"model.layers.{i}.")
        yield from self.norm.parameters("model.norm")
        yield from self.head.parameters("lm_head")
