"""Token embedding and the language-model head, which may share one weight (tied)."""

import torch
from torch.nn import functional

import yaie_kernels as ops
from yaie.layers.options import NamedTensors, TensorOptions


class Embedding:
    """Rows of a [vocab, hidden] table, multiplied by `scale` rounded to the table's dtype."""

    def __init__(
        self,
        vocab_size: int,
        hidden_size: int,
        *,
        scale: float | None = None,
        options: TensorOptions,
    ) -> None:
        self.weight = options.empty(vocab_size, hidden_size)
        self.scale = scale and float(torch.tensor(scale, dtype=options.dtype))

    def __call__(self, ids: torch.Tensor) -> torch.Tensor:
        """Look up ids [T] int64 -> [T, hidden]."""
        rows = functional.embedding(ids, self.weight)
        return rows if self.scale is None else rows.mul_(self.scale)

    def parameters(self, name: str) -> NamedTensors:
        """Destination of `name + .weight`."""
        yield f"{name}.weight", self.weight


class LMHead:
    """Logits over the vocabulary, soft-capped to ±`softcap` if it is set (Gemma 2,
    arXiv:2408.00118).

    `tied`: the embedding whose weight the head uses; None: the head has its own weight.
    """

    def __init__(
        self,
        vocab_size: int,
        hidden_size: int,
        *,
        tied: Embedding | None,
        softcap: float | None = None,
        options: TensorOptions,
    ) -> None:
        self.tied = tied is not None
        self.weight = tied.weight if tied is not None else options.empty(vocab_size, hidden_size)
        self.softcap = softcap

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        """Hidden [N, hidden] -> logits [N, vocab]."""
        logits = ops.linear(hidden, self.weight)
        if self.softcap is None:
            return logits
        return logits.div_(self.softcap).tanh_().mul_(self.softcap)

    def parameters(self, name: str) -> NamedTensors:
        """Destination of `name + .weight`; none if tied."""
        if not self.tied:
            yield f"{name}.weight", self.weight
