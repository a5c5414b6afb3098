"""Pools a prompt's hidden states into one vector: the last token's, the mean, or the class logits.

A prompt may be computed in chunks, so each slot has a float32 sum for the mean. Vectors are not
normalised.
"""

from collections.abc import Iterable

import torch

from yaie.core.batch import Row, SlotInit
from yaie.models.model import DecoderModel


class Pooler:
    """Pools the rows of steps. `rows`: number of slots. The sums [rows, hidden] are on the device
    and are allocated when first needed.
    """

    def __init__(self, model: DecoderModel, rows: int) -> None:
        self._model = model
        self._rows = rows
        self._inits: dict[int, SlotInit] = {}
        self._sums: torch.Tensor | None = None

    def start(self, inits: Iterable[SlotInit]) -> None:
        """Prepare the slots of sequences that start."""
        for init in inits:
            self._inits.pop(init.slot, None)
            if init.pooling is not None:
                self._inits[init.slot] = init
            if init.pooling == "mean":
                self._sum(init.slot).zero_()

    def add(self, row: Row, hidden: torch.Tensor) -> torch.Tensor | None:
        """Add a row's hidden states [n, hidden]. Returns the float32 vector [hidden or classes] if
        the prompt ends with this row, else None.

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
