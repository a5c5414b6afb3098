"""Decoders with experts in the place of MLPs: Mixtral, Qwen's mixtures, DeepSeek.

Which layers, how many experts and how they are chosen comes from `config.moe`; a subclass says what
its checkpoints call them.
"""

from yaie.layers.interfaces import FeedForward
from yaie.layers.moe import ExpertNames, MoE
from yaie.layers.options import Alternatives
from yaie.model_config.moe import MoEConfig
from yaie.models.decoder import MLP
from yaie.models.llama import Llama


class SparseDecoder(Llama):
    """Qwen2 and Qwen3 mixtures as they are; a base for the others.

    Attributes:
        block: name of a mixture in a layer.
        expert_names: names of an expert's matrices.
        shared_name: name of the MLP that every token goes through.

    """

    block = "mlp"
    expert_names = ExpertNames()
    shared_name = "shared_expert"

    def make_mlp(self, index: int) -> FeedForward:
        """Build experts where the config has them, an MLP elsewhere."""
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
        """Stacked experts, as newer checkpoints have them."""
        for index, layer in enumerate(self.layers):
            if isinstance(layer.mlp, MoE):
                yield from layer.mlp.alternatives(f"model.layers.{index}.mlp.")

    def unused(self) -> tuple[str, ...]:
        """Besides, prefixes of layers past the last (drafts of later tokens)."""
        first = self.config.num_layers
        return super().unused() + tuple(
            f"model.layers.{index}." for index in range(first, first + self.config.extra_layers)
        )
