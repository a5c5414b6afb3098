"""What all transformers models share, wherever their keys and values are: a body and a head, split
by `backbone_split`, and no classes.
"""

from typing import Any

import torch

from yaie.layers.options import NamedTensors, TensorOptions
from yaie.models.hf.backbone_split import Split


class HalvedTransformer:
    """The part of `models.model.Model` that stands after the body's last layer.

    A subclass calls `halve` once its model can run, and runs the body.
    """

    num_labels = 0

    def __init__(self, model: Any, options: TensorOptions) -> None:
        self.architecture = type(model).__name__
        self.options = options
        self._model = model

    def halve(self, **arguments: Any) -> None:
        """Run the model once with `arguments` to tell its halves apart.

        Raises:
            UnfitError: the model has no such halves.

        """
        self._split = Split(self._model, **arguments)
        self.vocab_size = self._split.vocab_size
        self.hidden_size = self._split.hidden_size

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Hidden [N, hidden] -> [N, vocab] in the model's dtype."""
        return self._split.logits(hidden)

    def classify(self, hidden: torch.Tensor) -> torch.Tensor:
        """Raise: a language model has no class logits."""
        raise NotImplementedError(f"{self.architecture} has no labels; given {hidden.shape}")

    def parameters(self) -> NamedTensors:
        """Every parameter once."""
        yield from self._model.named_parameters()
