"""The decoder of all native models: rotary attention and a gated MLP in each layer (Llama, Touvron
et al. 2023, arXiv:2302.13971).

The code is in order of execution: embedding, layers, final norm, logits. Llama, Mistral, Qwen and
Gemma 1 are this class with different options of `ModelConfig`.
"""

import copy
import logging
from typing import Self

import torch

from yaie.layers.attention import StepInput
from yaie.layers.embedding import Embedding, LMHead
from yaie.layers.interfaces import FeedForward, Mixer
from yaie.layers.linear import Linear
from yaie.layers.options import Alternatives, NamedTensors, TensorOptions
from yaie.layers.rotary import angle_table
from yaie.model_config.decoder_config import ModelConfig
from yaie.models.decoder import MLP, Attention, DecoderLayer, make_norm
from yaie_api.logs import fields

log = logging.getLogger(__name__)


class Llama:
    """The whole model. `max_positions`: length of the rotary tables (the longest sequence).

    A family with another structure sets other classes for the parts, or overrides a `make_` method
    if its layers differ from each other.
    """

    layer: type[DecoderLayer] = DecoderLayer
    attention: type[Attention] = Attention
    mlp: type[MLP] = MLP

    def __init__(self, config: ModelConfig, options: TensorOptions, max_positions: int) -> None:
        self.config = config
        self.options = options
        self.architecture = config.architecture
        self.vocab_size, self.hidden_size = config.vocab_size, config.hidden_size
        self.num_labels = config.num_labels
        self.embedding = Embedding(
            config.vocab_size, config.hidden_size, scale=config.embedding_scale, options=options
        )
        self.angles = {
            rope: angle_table(rope, config.rope_size, max_positions).to(options.device)
            for rope in set(config.ropes)
        }
        self._say_length(max_positions)
        self.layers = [self.make_layer(index) for index in range(config.num_layers)]
        self.caches = tuple(layer.attention.cache for layer in self.layers)
        self.norm = make_norm(config, options)
        self.head = self._head() if config.head == "lm" else None
        self.score = (
            Linear(config.hidden_size, {"score": config.num_labels}, bias=False, options=options)
            if config.head == "score"
            else None
        )

    def _say_length(self, longest: int) -> None:
        """Log a warning for a model that rotates short and long sequences differently."""
        exact, limit = self.config.max_positions, self.config.position_limit
        if longest > exact:
            log.warning(
                "short sequences are rotated like long ones, for max_model_len asks for long ones",
                extra=fields(max_model_len=longest, short=exact),
            )
        elif limit > exact:
            log.warning(
                "sequences are as long as the model's short rotary factors hold; max_model_len can "
                "ask for longer ones, with the long factors for all",
                extra=fields(max_model_len=longest, at_most=limit),
            )

    def make_layer(self, index: int) -> DecoderLayer:
        """Build layer `index`."""
        attention, mlp = self.make_attention(index), self.make_mlp(index)
        return self.layer(self.config, attention, mlp, self.options)

    def make_attention(self, index: int) -> Mixer:
        """Build the attention of layer `index`."""
        cos_sin = self.angles[self.config.ropes[index]]
        return self.attention(self.config, index, cos_sin, self.options)

    def make_mlp(self, index: int) -> FeedForward:  # noqa: ARG002 - for models whose layers differ
        """Build the feed-forward part of layer `index`."""
        return self.mlp(self.config, self.config.intermediate_size, self.options)

    def _head(self) -> LMHead:
        config = self.config
        return LMHead(
            config.vocab_size,
            config.hidden_size,
            tied=self.embedding if config.tie_word_embeddings else None,
            softcap=config.logit_softcap,
            options=self.options,
        )

    def forward(self, ids: torch.Tensor, step: StepInput) -> torch.Tensor:
        """Ids [T] int64 -> hidden states [T, hidden] after the final norm."""
        x, residual = self.layers[0](self.embedding(ids), None, step)
        for layer in self.layers[1:]:
            x, residual = layer(x, residual, step)
        return self.norm.add(x, residual)[0]

    def shortened(self) -> Self:
        """Keep the first layer, which gets no residual, and one more of each kind."""
        kinds = {self._kind(index): layer for index, layer in enumerate(self.layers) if index}
        short = copy.copy(self)
        short.layers = [self.layers[0], *kinds.values()]
        return short

    def _kind(self, index: int) -> tuple[object, ...]:
        """What the kernels of layer `index` depend on."""
        config = self.config
        sparse = config.moe is not None and config.moe.sparse[index]
        return config.windows[index], config.ropes[index], sparse

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Hidden [N, hidden] -> [N, vocab] in the model's dtype."""
        if self.head is None:
            raise NotImplementedError(f"{self.architecture} has no language model head")
        return self.head(hidden)

    def classify(self, hidden: torch.Tensor) -> torch.Tensor:
        """Hidden [N, hidden] -> class logits [N, num_labels]."""
        if self.score is None:
            raise NotImplementedError(f"{self.architecture} has no classes")
        return self.score(hidden)

    def parameters(self) -> NamedTensors:
        """Name and destination of every tensor of the checkpoint."""
        yield from self.embedding.parameters("model.embed_tokens")
        for i, layer in enumerate(self.layers):
            yield from layer.parameters(f"model.layers.{i}.")
        yield from self.norm.parameters("model.norm")
        if self.head is not None:
            yield from self.head.parameters("lm_head")
        if self.score is not None:
            yield from self.score.parameters("")

    def alternatives(self) -> Alternatives:
        """Other names and shapes of the same tensors in checkpoints: none here."""
        yield from ()

    def unused(self) -> tuple[str, ...]:
        """Prefixes of tensors that are not used: the head, if the architecture has none."""
        return () if self.head is not None else ("lm_head.",)
