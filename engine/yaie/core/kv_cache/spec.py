"""Shape of the KV cache as the scheduler sees it: KV cache groups, pages, page size. No tensors."""

from typing import Literal

import msgspec

GroupKind = Literal["full", "window", "latent"]


class KVCacheGroup(msgspec.Struct, frozen=True):
    """Layers that share one page pool and one block table.

    `bytes_per_token` counts all layers of the group, keys and values. `window`: in tokens.
    """

    kind: GroupKind
    layers: tuple[int, ...]
    bytes_per_token: int
    window: int | None = None


class KVSpec(msgspec.Struct, frozen=True):
    """The KV cache groups of a model. Page 0 of every pool is the scratch page of padding rows."""

    groups: tuple[KVCacheGroup, ...]
    page_size: int = 16

    @property
    def bytes_per_page(self) -> int:
        """Bytes that one page of every group takes together."""
        return self.page_size * sum(group.bytes_per_token for group in self.groups)
