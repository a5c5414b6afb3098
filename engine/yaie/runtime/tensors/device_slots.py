"""Slots: rows of device state, one per running sequence (last token, block table, parameters).

The runner owns them; a Batch says what changes. The host has a copy of the block tables, from which
the slot mapping of a step is computed. Changes are uploaded together with the step's other
integers.
"""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from yaie.core.batch import Batch, SlotInit
from yaie.core.group import folded


class SlotChanges(NamedTuple):
    """What a batch changes on the device, for I started sequences and P new pages.

    `seeds` [I]; `floats` (temperature, top_p, min_p) [3, I]; `integers` (slot, top_k) [2, I];
    `table_index` [P] into the flattened block tables; `table_value` [P] page numbers.
    """

    seeds: NDArray[np.int64]
    floats: NDArray[np.float32]
    integers: NDArray[np.int32]
    table_index: NDArray[np.int32]
    table_value: NDArray[np.int32]


class Slots:
    """`max_num_seqs` rows, and a scratch row for padding rows of graphs (its table is all 0)."""

    def __init__(self, max_num_seqs: int, max_pages: int, device: torch.device) -> None:
        rows = max_num_seqs + 1
        self.scratch = max_num_seqs
        self.host_tables = np.zeros((rows, max_pages), dtype=np.int32)
        self._lengths = [0] * rows
        self.tables = torch.zeros((rows, max_pages), dtype=torch.int32, device=device)
        self.last_token = torch.zeros(rows, dtype=torch.int64, device=device)
        self.top_k = torch.zeros(rows, dtype=torch.int32, device=device)
        self.seed = torch.zeros(rows, dtype=torch.int64, device=device)
        self._floats = torch.zeros((3, rows), dtype=torch.float32, device=device)
        self.temperature, self.top_p, self.min_p = self._floats

    def apply(self, batch: Batch) -> SlotChanges:
        """Apply a batch on the host. Returns the changes that `write` must make on the device."""
        index: list[int] = []
        value: list[int] = []
        for slot in batch.releases:
            self._lengths[slot] = 0
        for init in batch.inits:
            self._lengths[init.slot] = 0
            self._append(init.slot, init.pages[0], index, value)
        for append in batch.appends:
            self._append(append.slot, append.pages, index, value)
        return SlotChanges(
            *_sampling(batch.inits),
            np.array(index, dtype=np.int32),
            np.array(value, dtype=np.int32),
        )

    def _append(
        self, slot: int, pages: tuple[int, ...], index: list[int], value: list[int]
    ) -> None:
        start = self._lengths[slot]
        end = start + len(pages)
        self.host_tables[slot, start:end] = pages
        self._lengths[slot] = end
        row = slot * self.host_tables.shape[1]
        index.extend(range(row + start, row + end))
        value.extend(pages)

    def write(
        self,
        seeds: torch.Tensor,
        floats: torch.Tensor,
        integers: torch.Tensor,
        table_index: torch.Tensor,
        table_value: torch.Tensor,
    ) -> None:
        """Apply changes on the device: the fields of SlotChanges as flat int32 tensors."""
        if len(integers):
            slot, top_k = integers.view(2, -1).long()
            self.top_k[slot] = top_k.int()
            self.seed[slot] = seeds.view(torch.int64)
            self._floats[:, slot] = floats.view(torch.float32).view(3, -1)
        if len(table_index):
            self.tables.view(-1)[table_index.long()] = table_value


def _sampling(
    inits: tuple[SlotInit, ...],
) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.int32]]:
    """Seeds [I]; (temperature, top_p, min_p) [3, I]; (slot, top_k) [2, I]."""
    params = [init.sampling for init in inits]
    seeds = np.array([folded(init.seed) for init in inits], dtype=np.int64)
    floats = np.array(
        [
            [p.temperature for p in params],
            [p.top_p for p in params],
            [p.min_p for p in params],
        ],
        dtype=np.float32,
    )
    integers = np.array(
        [[init.slot for init in inits], [max(p.top_k, 0) for p in params]], dtype=np.int32
    )
    return seeds, floats, integers
