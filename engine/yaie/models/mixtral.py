"""Mixtral: Mistral with experts in every layer, under names of its own."""

from yaie.layers.moe import ExpertNames
from yaie.models.sparse import SparseDecoder


class Mixtral(SparseDecoder):
    """An expert's matrices are w1 (gate), w3 (up) and w2 (down)."""

    block = "block_sparse_moe"
    expert_names = ExpertNames("w1", "w3", "w2")
