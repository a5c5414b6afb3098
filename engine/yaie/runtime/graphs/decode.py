"""CUDA graphs of steps that only decode.

One graph runs one token of each of `rows` sequences: it reads the slots' last tokens, computes slot
mapping and context lengths on the device, runs the model, samples, and writes the slots' last
tokens. Its only inputs are two integers per row. Padding rows use the scratch slot, whose pages are
page 0.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import torch

from yaie.layers.attention import Segment, StepInput
from yaie.models.model import DecoderModel
from yaie.runtime.graphs.capture import STAND_INS, Graph, Recorder, Tail
from yaie.runtime.loop.step_cost import StepShape
from yaie.runtime.sampling.sampler import SamplerOutput, draw
from yaie.runtime.tensors.device_slots import Slots
from yaie.runtime.tensors.inputs import ForwardBatch, Ints
from yaie.runtime.tensors.kv_tensors import KVTensors

SIZES = (1, 2, 4, 8, *range(16, 129, 16), *range(160, 513, 32), *range(640, 1025, 128))
FEW_SIZES = (1, 4, 16, 64, 128, 256, 512)
"""Rows of graphs with rarer tails, and of graphs that are timed. Steps with such tails are padded
more.
"""
MAIN_SIZES = (1, 4, 8, 16, 32, 64, 96, 128, 192, 256, 384, 512, 768)
"""Rows of graphs that are captured before the engine is ready, together with the largest. Padding
rows cost little, while each graph takes about 30 ms of the start.
"""
SMALL = 128
"""Up to this many rows, greedy sampling and long contexts have their own graphs. In larger steps,
greedy sampling saves less than one per cent, and the rows alone fill the device, whatever their
contexts.
"""
TAILS: tuple[Tail, ...] = ("greedy", "plain", "filtered", "logits")
CONTEXTS = (2048, 16384)
"""Context lengths, in tokens, for which attention is split into programs. Every graph is correct
for every context, but a graph for long contexts starts more programs than short ones need.
"""


class DecodeKey(NamedTuple):
    rows: int
    context: int
    tail: Tail


@dataclass(frozen=True, slots=True)
class DecodeGraph:
    """A captured step of `rows` rows. `slots`, `positions`: [rows] int64 inputs, in memory that all
    graphs share.
    """

    rows: int
    scratch: int
    graph: Graph
    slots: torch.Tensor
    positions: torch.Tensor
    logits: torch.Tensor
    drawn: SamplerOutput | None

    def inputs(self, arrays: ForwardBatch) -> tuple[Ints, ...]:
        """[rows] slot of each row, the scratch slot for padding; [rows] position of each row's
        token.
        """
        missing = self.rows - len(arrays.slots)
        return (
            np.pad(arrays.slots, (0, missing), constant_values=self.scratch),
            np.pad(arrays.positions, (0, missing)),
        )

    def places(self, arrays: ForwardBatch) -> Ints:
        """The rows have the same numbers in the graph."""
        return arrays.sampled

    def replay(self, inputs: tuple[torch.Tensor, ...]) -> None:
        """Run the step."""
        slots, positions = inputs
        self.slots.copy_(slots)
        self.positions.copy_(positions)
        self.graph.replay()


class DecodeGraphs:
    """Graphs by (rows, context, tail), sharing one memory pool and one input buffer.

    Args:
        recorder: records steps.
        model, kv, slots: the runner's.
        logits: [max_num_seqs or more, vocab] memory for steps that end without sampling.
        max_model_len: longest sequence in tokens.

    """

    def __init__(
        self,
        recorder: Recorder,
        model: DecoderModel,
        kv: KVTensors,
        slots: Slots,
        *,
        logits: torch.Tensor,
        max_model_len: int,
    ) -> None:
        self.model = model
        self._shortened = model.shortened()
        self.kv = kv
        self.slots = slots
        largest = slots.scratch
        self.sizes = [*(size for size in SIZES if size < largest), largest]
        self._few = {*FEW_SIZES, largest}
        self.captured: dict[DecodeKey, DecodeGraph] = {}
        self._logits = logits
        self._recorder = recorder
        self._ran: set[tuple[int, int]] = set()
        self._contexts = sorted({min(context, max_model_len) for context in CONTEXTS})
        self._slots = torch.full((largest,), slots.scratch, device=model.options.device)
        self._positions = torch.zeros_like(self._slots)
        self._columns = torch.arange(largest + 1, dtype=torch.int32, device=model.options.device)

    def find(self, arrays: ForwardBatch, tail: Tail) -> DecodeGraph | None:
        """Return the best captured graph for a step; None: run it eagerly."""
        padded = next((size for size in self.sizes if size >= len(arrays.slots)), None)
        if padded is None:
            return None
        longest = int(arrays.seq_lens.max())
        contexts = sorted(self._contexts, key=lambda context: (context < longest, context))
        keys = (
            DecodeKey(rows, context, stand_in)
            for rows in self.sizes[self.sizes.index(padded) :]
            for stand_in in STAND_INS[tail]
            for context in contexts
        )
        return next((self.captured[key] for key in keys if key in self.captured), None)

    def planned(self) -> Iterator[DecodeKey]:
        """Graphs to capture, the largest first: it determines the size of the memory pool."""
        for rows in reversed(self.sizes):
            small, rare = rows <= SMALL, rows in self._few
            tails = {"greedy": small, "plain": True, "filtered": rare, "logits": rare}
            for tail in (tail for tail in TAILS if tails[tail]):
                contexts = {self._contexts[-1]} if small else set()
                if not small or tail in {"greedy", "plain"}:
                    contexts.add(self._contexts[0])
                for context in sorted(contexts, reverse=True):
                    yield DecodeKey(rows, context, tail)

    def is_main(self, key: DecodeKey) -> bool:
        """Whether a graph is captured before the engine is ready. One of these graphs can replace
        any other and gives the same tokens, with more rows, slower sampling, or fewer programs per
        row.
        """
        usual = key.tail == "plain" and key.context == self._contexts[0]
        return key.tail == "logits" or (usual and key.rows in {*MAIN_SIZES, self.sizes[-1]})

    def prepare(self, key: DecodeKey) -> None:
        """Compile the step's kernels: run them outside a graph, on the scratch slot."""
        rows = key.rows
        self._slots[:rows] = self.slots.scratch
        self._positions[:rows] = 0
        if (rows, key.context) not in self._ran:
            self._recorder.run(partial(self._step, key, self._shortened, every_draw=True))
            self._ran.add((rows, key.context))

    def capture(self, key: DecodeKey) -> None:
        """Record one graph, on the scratch slot.

        Raises:
            torch.OutOfMemoryError: there is no memory for the graph.

        """
        self.prepare(key)
        rows = key.rows
        graph, drawn = self._recorder.record(lambda: self._step(key, self.model))
        self.captured[key] = DecodeGraph(
            rows,
            self.slots.scratch,
            graph,
            self._slots[:rows],
            self._positions[:rows],
            self._logits[:rows],
            drawn,
        )

    def measure(self) -> Iterator[tuple[StepShape, float]]:
        """Seconds of steps that decode short sequences, measured by replays on the scratch slot."""
        self._slots.fill_(self.slots.scratch)
        self._positions.zero_()
        for key, graph in self.captured.items():
            usual = key.tail == "plain" and key.context == self._contexts[0]
            if usual and key.rows in self._few:
                yield StepShape(key.rows), self._recorder.seconds(graph.graph)

    def _step(
        self, key: DecodeKey, model: DecoderModel, *, every_draw: bool = False
    ) -> SamplerOutput | None:
        rows, page_size = key.rows, self.kv.page_size
        slots, positions = self._slots[:rows], self._positions[:rows]
        page = self.slots.tables[slots, positions // page_size]
        slot_mapping = page * page_size + positions % page_size
        seq_lens = positions + 1
        segment = Segment(
            first=0,
            last=rows,
            block_tables=self.slots.tables,
            seq_lens=seq_lens.int(),
            query_start=self._columns[: rows + 1],
            max_query_len=1,
            max_seq_len=key.context,
            rows=slots,
        )
        step = StepInput(positions, slot_mapping, (segment,), self.kv.caches)
        logits = model.logits(model.forward(self.slots.last_token[slots], step))
        if every_draw:  # compiles the kernels of all draws before any capture
            for tail in ("greedy", "plain", "filtered"):
                draw(logits, self.slots, slots, seq_lens, how=tail)
        if key.tail == "logits":
            self._logits[:rows].copy_(logits)
            return None
        return draw(logits, self.slots, slots, seq_lens, how=key.tail)
