"""Device and dtype of a layer's tensors, and the types of their names and destinations."""

from collections.abc import Iterator
from typing import NamedTuple

import torch

NamedTensors = Iterator[tuple[str, torch.Tensor]]
"""Pairs of (name in the checkpoint, destination): loading copies into the destination."""


class Alternative(NamedTuple):
    """A tensor that some checkpoints have instead of others: stacked, or under another name."""

    name: str
    destination: torch.Tensor
    replaces: tuple[str, ...]


Alternatives = Iterator[Alternative]


class TensorOptions(NamedTuple):
    """Device and dtype of a model's weights."""

    device: torch.device
    dtype: torch.dtype

    def empty(self, *shape: int) -> torch.Tensor:
        """Return an uninitialised tensor of `shape`."""
        return torch.empty(shape, device=self.device, dtype=self.dtype)

    def zeros(self, *shape: int) -> torch.Tensor:
        """Return a zeroed tensor of `shape`."""
        return torch.zeros(shape, device=self.device, dtype=self.dtype)
