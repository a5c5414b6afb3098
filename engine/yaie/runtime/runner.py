"""The model runner: turns a Batch into device work and, later, into a StepResult.

`launch` enqueues the forward pass, `sample` the drawing of tokens, `collect` waits for them. On a
GPU nothing here waits before `collect`: the sampled token of a step is read by the next step on
the device, so a step can be launched while the previous one still runs (depth 1).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from yaie.core.batch import Batch, StepResult
from yaie.layers.attention import Segment, StepInput
from yaie.models.model import Model
from yaie.runtime.arrange import Ints, StepArrays, arrange, pack
from yaie.runtime.graphs import DecodeGraph, DecodeGraphs
from yaie.runtime.kv_tensors import KVTensors
from yaie.runtime.loop import FatalRunnerError, TokenMasks
from yaie.runtime.sampler import Draw, draw
from yaie.runtime.slots import Slots


@dataclass(slots=True)
class Ticket:
    """A step in flight. `sampled`: indices of the rows that sample, in row order."""

    step_id: int
    n_rows: int
    sampled: Ints
    logits: torch.Tensor | None = None
    rows: torch.Tensor | None = None
    positions: torch.Tensor | None = None
    greedy: bool = True
    output: torch.Tensor | None = None
    ready: torch.cuda.Event | None = None


class ModelRunner:
    """Implements the loop's Runner protocol for one device. Not thread-safe.

    Args:
        model: the loaded model.
        kv: its KV cache.
        max_num_seqs: slots; a Batch names slots 0 .. max_num_seqs - 1.
        max_model_len: longest sequence in tokens, bounds the block tables.
        capture_graphs: replay CUDA graphs for decode steps (ignored on a CPU).

    """

    def __init__(
        self,
        model: Model,
        kv: KVTensors,
        *,
        max_num_seqs: int,
        max_model_len: int,
        capture_graphs: bool = True,
    ) -> None:
        self.model = model
        self.kv = kv
        self.device = model.options.device
        self.cuda = self.device.type == "cuda"
        self.depth = 1 if self.cuda else 0
        max_pages = -(-max_model_len // kv.page_size) + 1
        self.slots = Slots(max_num_seqs, max_pages, self.device)
        self.graphs = (
            DecodeGraphs(model, kv, self.slots, max_model_len)
            if self.cuda and capture_graphs
            else None
        )

    @torch.inference_mode()
    def launch(self, batch: Batch) -> Ticket:
        """Apply the batch's changes and enqueue its forward pass.

        Raises:
            ValueError: rows out of order.
            torch.OutOfMemoryError: activations do not fit; slots and cache stay consistent.
            FatalRunnerError: the device reported an error that it does not recover from.

        """
        with _fatal_device_errors():
            return self._launch(batch)

    def _launch(self, batch: Batch) -> Ticket:
        changes = self.slots.apply(batch)
        arrays = arrange(batch.rows, self.slots.host_tables, self.kv.page_size)
        greedy = bool(self.slots.greedy[arrays.slots[arrays.sampled]].all())
        graph = self._graph(arrays, greedy=greedy)
        if graph is not None:
            arrays = _padded(arrays, graph.rows, self.slots.scratch)
        parts = self._upload((*changes, *arrays))
        self.slots.write(*parts[: len(changes)])
        self._move_pages(batch)
        step = _DeviceStep(*parts[len(changes) :])
        ticket = Ticket(batch.step_id, len(batch.rows), arrays.sampled, greedy=greedy)
        if graph is not None:
            self._send(ticket, graph.replay(step.slots, step.positions))
        elif batch.rows:
            self._forward(ticket, arrays, step)
        return ticket

    def _move_pages(self, batch: Batch) -> None:
        """Swap out before anything may overwrite a page that leaves."""
        if batch.swap_out:
            self.kv.swap_out(batch.swap_out)
        if batch.swap_in:
            self.kv.swap_in(batch.swap_in)
        if batch.copies:
            self.kv.copy(batch.copies)

    @torch.inference_mode()
    def sample(self, ticket: Ticket, masks: TokenMasks | None = None) -> None:
        """Enqueue the drawing of the ticket's tokens (a captured step has done it already)."""
        if masks is not None:
            raise NotImplementedError("masks")
        logits, rows, positions = ticket.logits, ticket.rows, ticket.positions
        if logits is None or rows is None or positions is None:
            return
        with _fatal_device_errors():
            self._send(ticket, draw(logits, self.slots, rows, positions, greedy=ticket.greedy))
        ticket.logits = None

    def collect(self, ticket: Ticket) -> StepResult:
        """Wait for the ticket's tokens."""
        tokens = [-1] * ticket.n_rows
        finite = [True] * ticket.n_rows
        if ticket.output is not None:
            if ticket.ready is not None:
                with _fatal_device_errors():
                    ticket.ready.synchronize()
            drawn, flags = ticket.output.tolist()  # longer than `sampled` where rows were padded
            for row, token, flag in zip(ticket.sampled.tolist(), drawn, flags, strict=False):
                tokens[row] = token
                finite[row] = bool(flag)
        return StepResult(ticket.step_id, tuple(tokens), tuple(finite))

    def _graph(self, arrays: StepArrays, *, greedy: bool) -> DecodeGraph | None:
        """Return the captured step that fits: only decodes, and all of them sample."""
        n_rows = len(arrays.slots)
        decodes_only = arrays.n_decode == len(arrays.sampled) == n_rows > 0
        if self.graphs is None or not decodes_only:
            return None
        return self.graphs.find(n_rows, int(arrays.seq_lens.max()), greedy=greedy)

    def _upload(self, arrays: tuple[np.ndarray, ...]) -> tuple[torch.Tensor, ...]:
        """Bring all arrays to the device in one copy; flat int32 views of it come back."""
        packed, sizes = pack(arrays)
        tensor = torch.from_numpy(packed)
        if self.cuda:
            # Pinned blocks return to torch's host cache only after the copies that use them.
            tensor = tensor.pin_memory().to(self.device, non_blocking=True)
        return torch.split(tensor, sizes)

    def _forward(self, ticket: Ticket, arrays: StepArrays, step: "_DeviceStep") -> None:
        slots = step.slots.long()
        ids = self._ids(step, slots[: arrays.n_decode])
        positions = step.positions.long()
        inputs = StepInput(
            positions, step.kv_slots.long(), self._segments(arrays, step, slots), self.kv.caches
        )
        hidden = self.model.forward(ids, inputs)
        if len(arrays.sampled):
            sampled, last = step.sampled.long(), step.last.long()
            ticket.logits = self.model.logits(hidden if _is_all(arrays) else hidden[last])
            ticket.rows = slots[sampled]
            ticket.positions = step.seq_lens[sampled].long()

    def _ids(self, step: "_DeviceStep", decoding: torch.Tensor) -> torch.Tensor:
        if not len(decoding):
            return step.ids.long()
        return torch.cat((self.slots.last_token[decoding], step.ids))

    def _segments(
        self, arrays: StepArrays, step: "_DeviceStep", slots: torch.Tensor
    ) -> tuple[Segment, ...]:
        """Decode rows, then the rest; an empty half is left out."""
        n = arrays.n_decode
        decodes, others = slice(0, n), slice(n, len(arrays.slots))
        halves = (
            _Half(0, decodes, arrays.decode_start, step.decode_start),
            _Half(n, others, arrays.prefill_start, step.prefill_start),
        )
        return tuple(
            self._segment(half, arrays.seq_lens[half.rows], step.seq_lens[half.rows], slots)
            for half in halves
            if len(half.host_start) > 1
        )

    def _segment(
        self, half: "_Half", host_lens: Ints, seq_lens: torch.Tensor, slots: torch.Tensor
    ) -> Segment:
        max_seq_len = int(host_lens.max())
        width = -(-max_seq_len // self.kv.page_size)
        return Segment(
            first=half.first,
            last=half.first + int(half.host_start[-1]),
            block_tables=self.slots.tables[:, :width].index_select(0, slots[half.rows]),
            seq_lens=seq_lens,
            query_start=half.query_start,
            max_query_len=int(np.diff(half.host_start).max()),
            max_seq_len=max_seq_len,
        )

    def _send(self, ticket: Ticket, drawn: Draw) -> None:
        """Start the copy of tokens and flags to the host."""
        output = torch.stack((drawn.tokens, drawn.finite.to(torch.int64)))
        if self.cuda:
            pinned = torch.empty(output.shape, dtype=output.dtype, pin_memory=True)
            ticket.output = pinned.copy_(output, non_blocking=True)
            ticket.ready = torch.cuda.Event()  # type: ignore[no-untyped-call]  # untyped in torch
            ticket.ready.record()
        else:
            ticket.output = output


@dataclass(frozen=True, slots=True)
class _DeviceStep:
    """StepArrays on the device: flat int32 views of one uploaded buffer, in the same order."""

    ids: torch.Tensor
    positions: torch.Tensor
    kv_slots: torch.Tensor
    slots: torch.Tensor
    seq_lens: torch.Tensor
    decode_start: torch.Tensor
    prefill_start: torch.Tensor
    sampled: torch.Tensor
    last: torch.Tensor


class _Half(NamedTuple):
    """Rows of a step that become one segment: its first token, rows, and query offsets."""

    first: int
    rows: slice
    host_start: Ints
    query_start: torch.Tensor


@contextmanager
def _fatal_device_errors() -> Iterator[None]:
    """After an illegal access or a lost device every later call fails too: say so at once."""
    try:
        yield
    except torch.AcceleratorError as error:
        raise FatalRunnerError("The accelerator reported an error.") from error


def _is_all(arrays: StepArrays) -> bool:
    """Whether every token of the step is the last of a sampling row (nothing to select)."""
    return len(arrays.last) == len(arrays.positions)


def _padded(arrays: StepArrays, rows: int, scratch: int) -> StepArrays:
    """Pad a decode-only step to `rows`: padded rows run the scratch slot at position 0."""
    missing = rows - len(arrays.slots)
    return arrays._replace(
        slots=np.pad(arrays.slots, (0, missing), constant_values=scratch),
        positions=np.pad(arrays.positions, (0, missing)),
    )
