"""Token embedding and the language-model head, which may share one weight (tied)."""

import torch
from torch.nn import functional

from yaie.layers.options import NamedTensors, TensorOptions


class Embedding:
    """Rows of a [vocab, hidden] table."""

    def __init__(self, vocab_size: int, hidden_size: int, *, options: TensorOptions) -> None:
        self.weight = options.empty(vocab_size, hidden_size)

    def __call__(self, ids: torch.Tensor) -> torch.Tensor:
        """Ids [T] int64 -> [T, hidden]."""
        return functional.embedding(ids, self.weight)

    def parameters(self, name: str) -> NamedTensors:
        """Destination of `name + .weight`."""
        yield f"{name}.weight", self.weight


class LMHead:
    """Logits over the vocabulary. `tied`: the embedding whose weight is used instead of our own."""

    def __init__(
        self,
        vocab_size: int,
        hidden_size: int,
        *,
        tied: Embedding | None,
        options: TensorOptions,
    ) -> None:
        self.tied = tied is not None
        self.weight = tied.weight if tied is not None else options.empty(vocab_size, hidden_size)

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        """Hidden [N, hidden] -> logits [N, vocab]."""
        return functional.linear(hidden, self.weight)

    def parameters(self, name: str) -> NamedTensors:
        """Destination of `name + .weight`; nothing when tied."""
        if not self.tied:
            yield f"{name}.weight", self.weight
