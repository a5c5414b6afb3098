"""Decoders with experts instead of MLPs: Mixtral, Qwen's mixtures of experts, DeepSeek.

`config.moe` says which layers have experts, how many, and how they are chosen; a subclass defines
their names in checkpoints.
"""

from yaie.layers.interfaces import FeedForward
from yaie.layers.moe import ExpertNames, MoE
from yaie.layers.options import Alternatives
from yaie.model_config.moe import MoEConfig
from yaie.models.decoder import MLP
from yaie.models.llama import Llama


class SparseDecoder(Llama):
    """The model for Qwen2 and Qwen3 mixtures, and the base of the others.

    Attributes:
        block: name of a layer's mixture of experts.
        expert_names: names of an expert's matrices.
        shared_name: name of the shared expert, an MLP for every token.

    """

    block = "mlp"
    expert_names = ExpertNames()
    shared_name = "shared_expert"

    def make_mlp(self, index: int) -> FeedForward:
        """Build experts if the config has them in this layer, else an MLP."""
        moe = self.config.moe
        if moe is None or not moe.sparse[index]:
            return super().make_mlp(index)
        return MoE(
            moe,
            self.hidden_size,
            self.options,
            place=self.block,
            names=self.expert_names,
            shared=self._shared(moe),
        )

    def _shared(self, moe: MoEConfig) -> tuple[str, FeedForward] | None:
        if not moe.shared_size:
            return None
        return self.shared_name, MLP(self.config, moe.shared_size, self.options)

    def alternatives(self) -> Alternatives:
        """Stacked experts, as in newer checkpoints."""
        for index, layer in enumerate(self.layers):
            if isinstance(layer.mlp, MoE):
                yield from layer.mlp.alternatives(f"model.layers.{index}.mlp.")

    def unused(self) -> tuple[str, ...]:
        """As in `Llama`, and the prefixes of layers after the last (multi-token prediction)."""
        first = self.config.num_layers
        return super().unused() + tuple(
            f"model.layers.{index}." for index in range(first, first + self.config.extra_layers)
        )
