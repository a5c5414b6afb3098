"""What the runner asks of a model, native or not."""

from typing import NamedTuple, Protocol

import torch

from yaie.layers.attention import StepInput
from yaie.layers.options import NamedTensors, TensorOptions


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


class Model(Protocol):
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
