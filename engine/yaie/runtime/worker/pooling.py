"""One vector out of a prompt's hidden states: the last, the mean of all, or its class logits.

A prompt may come in chunks, so means gather in a float32 sum for each slot. Vectors are as the
model makes them, not normalised.
"""

from collections.abc import Iterable

import torch

from yaie.core.batch import Row, SlotInit
from yaie.models.model import DecoderModel


class Pooler:
    """Pools the rows of steps; sums live on the device and are made when first needed."""

    def __init__(self, model: DecoderModel, rows: int) -> None:
        self._model = model
        self._rows = rows
        self._inits: dict[int, SlotInit] = {}
        self._sums: torch.Tensor | None = None

    def start(self, inits: Iterable[SlotInit]) -> None:
        """Sequences enter slots, from their first token on."""
        for init in inits:
            self._inits.pop(init.slot, None)
            if init.pooling is not None:
                self._inits[init.slot] = init
            if init.pooling == "mean":
                self._sum(init.slot).zero_()

    def add(self, row: Row, hidden: torch.Tensor) -> torch.Tensor | None:
        """Take a row's hidden states [n, hidden]; the vector, float32, when the prompt ends here.

        Raises:
            ValueError: the row's sequence did not ask to be pooled.

        """
        init = self._inits.get(row.slot)
        if init is None:
            raise ValueError("a pooled row whose sequence asked for no vector")
        complete = row.start + row.n_tokens == init.prompt_tokens
        if init.pooling == "mean":
            total = self._sum(row.slot).add_(hidden.sum(dim=0, dtype=torch.float32))
            return total / init.prompt_tokens if complete else None
        if not complete:
            return None
        last = hidden[-1:]
        return (self._model.classify(last) if init.pooling == "classify" else last).float()[0]

    def _sum(self, slot: int) -> torch.Tensor:
        if self._sums is None:
            shape = (self._rows, self._model.hidden_size)
            self._sums = torch.zeros(shape, device=self._model.options.device)
        return self._sums[slot]
