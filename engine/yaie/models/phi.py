"""Phi-3 and Phi-4: Llama whose checkpoint already holds the fused projections."""

from yaie.models.decoder import MLP, Attention
from yaie.models.llama import Llama


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

    attention = PhiAttention
    mlp = PhiMLP
