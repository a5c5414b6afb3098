"""CUDA graphs of decode steps, captured when a size is first needed.

One graph runs `rows` sequences by one token: it reads the slots' last tokens, derives cache slots
and context lengths on the device, runs the model, samples, and writes the slots' last tokens. Its
only inputs are two integers per row. Padded rows run the scratch slot, whose pages are page 0.
A step in which a row wants more than a plain draw replays a graph that ends at the logits.
"""

import logging
from dataclasses import dataclass
from typing import Literal

import torch

from yaie.layers.attention import Segment, StepInput
from yaie.models.model import Model
from yaie.runtime import phases
from yaie.runtime.kv_tensors import KVTensors
from yaie.runtime.sampler import Draw, draw
from yaie.runtime.slots import Slots
from yaie.runtime.wishes import How
from yaie_api.logs import fields

log = logging.getLogger(__name__)

FIRST_CONTEXT = 2048
"""Smallest context bound that a graph is captured for; each next one is four times larger."""
Tail = How | Literal["logits"]
"""How a captured step draws, or that it ends at the logits."""
SIZES = (1, 2, 4, 8, *range(16, 129, 16), *range(160, 513, 32))


@dataclass(frozen=True, slots=True)
class DecodeGraph:
    """A captured step of `rows` rows. `slots`, `positions`: [rows] its inputs, shared by all.

    `drawn` is None where the step ends at its `logits` [rows, vocab]. Any replay of any graph may
    overwrite either.
    """

    rows: int
    graph: torch.cuda.CUDAGraph
    slots: torch.Tensor
    positions: torch.Tensor
    logits: torch.Tensor
    drawn: Draw | None

    def replay(self, slots: torch.Tensor, positions: torch.Tensor) -> None:
        """Run the step.

        Args:
            slots: [rows] slot of each row, the scratch slot where padded.
            positions: [rows] position of each row's last token, 0 where padded.

        """
        self.slots.copy_(slots)
        self.positions.copy_(positions)
        self.graph.replay()


class DecodeGraphs:
    """Graphs by (rows, context bound, tail), sharing one memory pool and one input buffer."""

    def __init__(self, model: Model, kv: KVTensors, slots: Slots, max_model_len: int) -> None:
        self.model = model
        self.kv = kv
        self.slots = slots
        self.max_model_len = max_model_len
        largest = next((size for size in SIZES if size >= slots.scratch), slots.scratch)
        self.sizes = sorted({size for size in SIZES if size < largest} | {largest})
        self._slots = torch.full((largest,), slots.scratch, device=model.options.device)
        self._positions = torch.zeros_like(self._slots)
        self._columns = torch.arange(largest + 1, dtype=torch.int32, device=model.options.device)
        self._pool = torch.cuda.graph_pool_handle()
        self._captured: dict[tuple[int, int, Tail], DecodeGraph] = {}
        self._exhausted = False

    def find(self, rows: int, longest: int, tail: Tail) -> DecodeGraph | None:
        """Return the graph for a step, captured now if need be; None: run the step eagerly.

        Args:
            rows: sequences in the step.
            longest: longest context of a row after this step, in tokens.
            tail: how the step ends.

        """
        padded = next((size for size in self.sizes if size >= rows), None)
        if padded is None:
            return None
        key = padded, self._bound(longest), tail
        if key not in self._captured and not self._exhausted:
            self._try_capture(*key)
        return self._captured.get(key)

    def _try_capture(self, rows: int, bound: int, tail: Tail) -> None:
        """Capture, unless memory is short: then no later capture is tried."""
        try:
            with phases.declared("graph capture"):
                self._captured[rows, bound, tail] = self._capture(rows, bound, tail)
        except torch.OutOfMemoryError as error:
            self._exhausted = True
            log.warning(
                "no memory for more CUDA graphs", extra=fields(rows=rows, reason=str(error))
            )

    def _bound(self, longest: int) -> int:
        bound = FIRST_CONTEXT
        while bound < longest:
            bound *= 4
        return min(bound, self.max_model_len)

    def _capture(self, rows: int, bound: int, tail: Tail) -> DecodeGraph:
        """Warm up on the scratch slot (kernels compile there), then record."""
        self._slots[:rows] = self.slots.scratch
        self._positions[:rows] = 0
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # untyped in torch
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self._step(rows, bound, tail)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            logits, drawn = self._step(rows, bound, tail)
        return DecodeGraph(rows, graph, self._slots[:rows], self._positions[:rows], logits, drawn)

    def _step(self, rows: int, bound: int, tail: Tail) -> tuple[torch.Tensor, Draw | None]:
        slots, positions = self._slots[:rows], self._positions[:rows]
        page_size = self.kv.page_size
        tables = self.slots.tables[:, : -(-bound // page_size)].index_select(0, slots)
        page = tables.gather(1, (positions // page_size)[:, None]).squeeze(1)
        kv_slots = page * page_size + positions % page_size
        seq_lens = positions + 1
        segment = Segment(
            first=0,
            last=rows,
            block_tables=tables,
            seq_lens=seq_lens.int(),
            query_start=self._columns[: rows + 1],
            max_query_len=1,
            max_seq_len=bound,
        )
        step = StepInput(positions, kv_slots, (segment,), self.kv.caches)
        hidden = self.model.forward(self.slots.last_token[slots], step)
        logits = self.model.logits(hidden)
        if tail == "logits":
            return logits, None
        return logits, draw(logits, self.slots, slots, seq_lens, how=tail)
