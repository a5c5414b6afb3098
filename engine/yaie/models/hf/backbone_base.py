"""Common base of transformers models, independent of their cache: a body and a head, separated by
`backbone_split`, and no classes.
"""

from typing import Any, Self

import torch

from yaie.layers.options import NamedTensors, TensorOptions
from yaie.models.hf.backbone_split import Split


class HalvedTransformer:
    """The part of `models.model.DecoderModel` after the body's last layer.

    A subclass calls `halve` when its model can run, and runs the body itself.
    """

    num_labels = 0

    def __init__(self, model: Any, options: TensorOptions) -> None:
        self.architecture = type(model).__name__
        self.options = options
        self._model = model

    def halve(self, **arguments: Any) -> None:
        """Run the model once with `arguments` to find its body and head.

        Raises:
            UnfitError: the model cannot be divided into body and head.

        """
        self._split = Split(self._model, **arguments)
        self.vocab_size = self._split.vocab_size
        self.hidden_size = self._split.hidden_size

    def shortened(self) -> Self:
        """Return this model: its body cannot run in part."""
        return self

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Hidden [N, hidden] -> [N, vocab] in the model's dtype."""
        return self._split.logits(hidden)

    def classify(self, hidden: torch.Tensor) -> torch.Tensor:
        """Raise NotImplementedError: a language model has no class logits."""
        raise NotImplementedError(f"{self.architecture} has no labels; given {hidden.shape}")

    def parameters(self) -> NamedTensors:
        """All parameters, each once."""
        yield from self._model.named_parameters()
