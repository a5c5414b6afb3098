"""Gemma 2 (arXiv:2408.00118) and 3 (arXiv:2503.19786): the decoder with norms before and after
attention and MLP.

All other properties of Gemma (norms with 1 + weight, scaled embeddings, soft caps, windows, two
rotary bases) are options of `ModelConfig`; Gemma 1 is `Llama` with such options.
"""

import torch

from yaie.layers.attention import StepInput
from yaie.layers.interfaces import FeedForward, Mixer
from yaie.layers.options import NamedTensors, TensorOptions
from yaie.model_config.decoder_config import ModelConfig
from yaie.models.decoder import DecoderLayer, make_norm
from yaie.models.llama import Llama


class SandwichLayer(DecoderLayer):
    """A layer with a norm before each sublayer, and one after it before the residual addition."""

    def __init__(
        self, config: ModelConfig, attention: Mixer, mlp: FeedForward, options: TensorOptions
    ) -> None:
        super().__init__(config, attention, mlp, options)
        self.after_attention = make_norm(config, options)
        self.after_mlp = make_norm(config, options)

    def __call__(
        self, x: torch.Tensor, residual: torch.Tensor | None, step: StepInput
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Run the layer; x [T, hidden] is the last output, not yet added to `residual`."""
        x, residual = self.attention.after(self.attention_norm, x, residual, step)
        x, residual = self.mlp.after(self.mlp_norm, self.after_attention(x), residual)
        return self.after_mlp(x), residual

    def parameters(self, prefix: str) -> NamedTensors:
        """Checkpoint names and destinations."""
        yield from self.attention_norm.parameters(f"{prefix}input_layernorm")
        yield from self.attention.parameters(f"{prefix}self_attn.")
        yield from self.after_attention.parameters(f"{prefix}post_attention_layernorm")
        yield from self.mlp_norm.parameters(f"{prefix}pre_feedforward_layernorm")
        yield from self.mlp.parameters(f"{prefix}mlp.")
        yield from self.after_mlp.parameters(f"{prefix}post_feedforward_layernorm")


class Gemma(Llama):
    """Gemma 2 and 3, text only."""

    layer = SandwichLayer
