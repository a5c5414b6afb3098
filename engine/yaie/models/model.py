"""What the runner asks of a model, native or not."""

from typing import Protocol

import torch

from yaie.layers.attention import StepInput
from yaie.layers.interfaces import LayerCache
from yaie.layers.options import NamedTensors, TensorOptions


class DecoderModel(Protocol):
    """A decoder whose keys and values live in our pages.

    `caches[i]` says what layer i keeps; `StepInput.caches[i]` are its tensors. `hidden_size` is the
    width of `forward`'s result, `num_labels` the classes of a sequence classifier (0: none).
    """

    architecture: str
    vocab_size: int
    hidden_size: int
    num_labels: int
    options: TensorOptions
    caches: tuple[LayerCache, ...]

    def forward(self, ids: torch.Tensor, step: StepInput) -> torch.Tensor:
        """Ids [T] int64 -> hidden states [T, hidden] after the final norm."""

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Hidden [N, hidden] -> [N, vocab] in the model's dtype, soft-capped where it does so."""

    def classify(self, hidden: torch.Tensor) -> torch.Tensor:
        """Hidden [N, hidden] -> class logits [N, num_labels]. Only where num_labels > 0."""

    def parameters(self) -> NamedTensors:
        """Every tensor of the checkpoint and where it goes."""
