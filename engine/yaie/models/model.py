"""The interface of models, native or not, for the runner."""

from typing import Protocol, Self

import torch

from yaie.layers.attention import StepInput
from yaie.layers.interfaces import LayerCache
from yaie.layers.options import NamedTensors, TensorOptions


class DecoderModel(Protocol):
    """A decoder with keys and values in our pages.

    `caches[i]` describes what layer i caches; `StepInput.caches[i]` are its tensors. `hidden_size`
    is the width of `forward`'s result, `num_labels` the number of classes of a sequence classifier
    (0: it is none).
    """

    architecture: str
    vocab_size: int
    hidden_size: int
    num_labels: int
    options: TensorOptions
    caches: tuple[LayerCache, ...]

    def forward(self, ids: torch.Tensor, step: StepInput) -> torch.Tensor:
        """Ids [T] int64 -> hidden states [T, hidden] after the final norm."""

    def shortened(self) -> Self:
        """Return a model with fewer layers, on the same memory, whose steps compile every kernel of
        this model's steps and need as much memory for activations. Their results mean nothing.
        """

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Hidden [N, hidden] -> [N, vocab] in the model's dtype, including any soft cap."""

    def classify(self, hidden: torch.Tensor) -> torch.Tensor:
        """Hidden [N, hidden] -> class logits [N, num_labels]. Requires num_labels > 0."""

    def parameters(self) -> NamedTensors:
        """Name and destination of every tensor of the checkpoint."""
