"""DeepSeek-V2, V3 and what was built after them: latent attention, grouped and shared experts."""

from yaie.layers.interfaces import Mixer
from yaie.layers.mla import LatentAttention
from yaie.models.sparse import SparseDecoder


class DeepSeek(SparseDecoder):
    """The versions differ by their configs alone."""

    shared_name = "shared_experts"

    def make_attention(self, index: int) -> Mixer:
        """Build latent attention in the form that the config names.

        Raises:
            ValueError: the config has no latent attention.

        """
        if self.config.mla is None:
            raise ValueError("DeepSeek without latent attention")
        cos_sin = self.angles[self.config.ropes[index]]
        return LatentAttention(self.config, self.config.mla, index, cos_sin, self.options)
