"""The KV cache's memory: one tensor per model, a key and a value page pool for each layer.

Which page belongs to whom is the scheduler's business; this module knows sizes and copies.
"""

from collections.abc import Sequence

import torch

import yaie_kernels as ops
from yaie.core.batch import PageCopy
from yaie.core.kv_spec import KVSpec, LayerGroup
from yaie.layers.options import TensorOptions
from yaie.models.config import ModelConfig
from yaie_api import capacity


def kv_spec(config: ModelConfig, page_size: int, dtype: torch.dtype) -> KVSpec:
    """One full-attention group over all layers (a window only masks, it frees no pages yet)."""
    per_token = capacity.kv_bytes_per_token(
        config.num_layers, config.num_kv_heads, config.head_dim, dtype.itemsize
    )
    layers = tuple(range(config.num_layers))
    return KVSpec(groups=(LayerGroup("full", layers, per_token),), page_size=page_size)


class KVTensors:
    """`caches[layer]` = (keys, values), each [pages, page_size, kv_heads, head_dim].

    Zeroed, because padded rows read the scratch page 0 before anything was written there. (On the
    CPU the system maps zero pages when they are first written: an unused cache costs no memory.)
    """

    def __init__(
        self, config: ModelConfig, num_pages: int, page_size: int, options: TensorOptions
    ) -> None:
        shape = (config.num_layers, 2, num_pages, page_size, config.num_kv_heads, config.head_dim)
        self.storage = torch.zeros(shape, dtype=options.dtype, device=options.device)
        self.caches = tuple((layer[0], layer[1]) for layer in self.storage)
        self.num_pages = num_pages
        self.page_size = page_size

    def copy(self, copies: Sequence[PageCopy]) -> None:
        """Copy whole pages inside every layer, in one call per pool."""
        device = self.storage.device
        source = torch.tensor([copy.source for copy in copies], device=device)
        target = torch.tensor([copy.target for copy in copies], device=device)
        for keys, values in self.caches:
            ops.copy_pages(keys, source, target)
            ops.copy_pages(values, source, target)
