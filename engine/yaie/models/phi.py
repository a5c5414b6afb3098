"""Phi-3 and Phi-4: Llama whose checkpoint already holds the fused projections."""

from yaie.models.llama import MLP, Attention, FeedForward, Llama, Mixer


class PhiAttention(Attention):
    """Queries, keys and values are one matrix of the checkpoint."""

    def qkv_parts(self) -> dict[str, int]:
        """Name the checkpoint's matrix."""
        return {"qkv_proj": sum(self.sizes)}


class PhiMLP(MLP):
    """Gate and up are one matrix of the checkpoint."""

    @staticmethod
    def gate_up_parts(inner: int) -> dict[str, int]:
        """Name the checkpoint's matrix."""
        return {"gate_up_proj": 2 * inner}


class Phi(Llama):
    """Partial rotation and long factors come from the config."""

    def make_attention(self, index: int) -> Mixer:
        """Build the attention of layer `index`."""
        cos_sin = self.angles[self.config.ropes[index]]
        return PhiAttention(self.config, index, cos_sin, self.options)

    def make_mlp(self, index: int) -> FeedForward:  # noqa: ARG002 - all layers are alike
        """Build the feed-forward part of layer `index`."""
        return PhiMLP(self.config, self.config.intermediate_size, self.options)
