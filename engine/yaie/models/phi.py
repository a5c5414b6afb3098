"""Phi-3 and Phi-4: Llama with checkpoints that contain fused projections."""

from yaie.models.decoder import MLP, Attention
from yaie.models.llama import Llama


class PhiAttention(Attention):
    """Attention with queries, keys and values in one matrix of the checkpoint."""

    def qkv_parts(self) -> dict[str, int]:
        """The checkpoint's matrix with its number of rows."""
        return {"qkv_proj": sum(self.sizes)}


class PhiMLP(MLP):
    """MLP with gate and up in one matrix of the checkpoint."""

    @staticmethod
    def gate_up_parts(inner: int) -> dict[str, int]:
        """The checkpoint's matrix with its number of rows."""
        return {"gate_up_proj": 2 * inner}


class Phi(Llama):
    """The model. Partial rotation and long factors come from the config."""

    attention = PhiAttention
    mlp = PhiMLP
