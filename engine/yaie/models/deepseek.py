"""DeepSeek-V2 (arXiv:2405.04434), V3 (arXiv:2412.19437) and models with their architecture: latent
attention, grouped and shared experts.
"""

from yaie.layers.interfaces import Mixer
from yaie.layers.mla import LatentAttention
from yaie.models.sparse import SparseDecoder


class DeepSeek(SparseDecoder):
    """All versions; they differ only in their configs."""

    shared_name = "shared_experts"

    def make_attention(self, index: int) -> Mixer:
        """Build latent attention in the config's form.

        Raises:
            ValueError: the config has no latent attention.

        """
        if self.config.mla is None:
            raise ValueError("DeepSeek without latent attention")
        cos_sin = self.angles[self.config.ropes[index]]
        return LatentAttention(self.config, self.config.mla, index, cos_sin, self.options)
