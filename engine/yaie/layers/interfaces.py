"""What a decoder layer asks of its parts, and what it keeps of each token."""

from typing import NamedTuple, Protocol

import torch

from yaie.layers.attention import StepInput
from yaie.layers.norm import RMSNorm
from yaie.layers.options import NamedTensors


class LayerCache(NamedTuple):
    """What one layer keeps of each token.

    Attributes:
        heads: key heads.
        key_size: size of a key.
        value_size: size of a value; 0 where values are the first columns of the keys (a latent
            cache): the layer knows how many.
        window: how far back the layer sees, itself included; None: everything.

    """

    heads: int
    key_size: int
    value_size: int
    window: int | None = None


class Mixer(Protocol):
    """What mixes tokens in a layer, and what it keeps of them."""

    cache: LayerCache

    def after(
        self, norm: RMSNorm, x: torch.Tensor, residual: torch.Tensor | None, step: StepInput
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Mix norm(x + residual), all [T, hidden]; return the result and the sum."""

    def parameters(self, prefix: str) -> NamedTensors:
        """Checkpoint names and destinations."""


class FeedForward(Protocol):
    """What works on each token alone."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Map x [T, hidden] to [T, hidden]."""

    def after(
        self, norm: RMSNorm, x: torch.Tensor, residual: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Map norm(x + residual), all [T, hidden]; return the result and the sum."""

    def parameters(self, prefix: str) -> NamedTensors:
        """Checkpoint names and destinations."""
