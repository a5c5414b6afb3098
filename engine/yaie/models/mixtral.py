"""Mixtral (arXiv:2401.04088): Mistral with experts in every layer, under other tensor names."""

from yaie.layers.moe import ExpertNames
from yaie.models.sparse import SparseDecoder


class Mixtral(SparseDecoder):
    """The model. An expert's matrices are named w1 (gate), w3 (up) and w2 (down)."""

    block = "block_sparse_moe"
    expert_names = ExpertNames("w1", "w3", "w2")
