"""Interfaces of the parts of a decoder layer, and the shape of its cache."""

from typing import NamedTuple, Protocol

import torch

from yaie.layers.attention import StepInput
from yaie.layers.norm import RMSNorm
from yaie.layers.options import NamedTensors


class LayerCache(NamedTuple):
    """What one layer caches per token.

    Attributes:
        heads: number of key heads.
        key_size: size of a key.
        value_size: size of a value; 0 if values are the first columns of the keys (a latent
            cache), whose number the layer knows.
        window: number of last tokens that a token sees, itself included; None: all.

    """

    heads: int
    key_size: int
    value_size: int
    window: int | None = None


class Mixer(Protocol):
    """The part of a layer that mixes tokens, such as attention, with its cache."""

    cache: LayerCache

    def after(
        self, norm: RMSNorm, x: torch.Tensor, residual: torch.Tensor | None, step: StepInput
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (mix(norm(x + residual)), x + residual), all [T, hidden]."""

    def parameters(self, prefix: str) -> NamedTensors:
        """Checkpoint names and destinations."""


class FeedForward(Protocol):
    """The part of a layer that processes each token independently, such as an MLP."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Map x [T, hidden] to [T, hidden]."""

    def after(
        self, norm: RMSNorm, x: torch.Tensor, residual: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (self(norm(x + residual)), x + residual), all [T, hidden]."""

    def parameters(self, prefix: str) -> NamedTensors:
        """Checkpoint names and destinations."""
