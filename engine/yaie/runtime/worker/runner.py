"""The model runner: turns a Batch into device work and, later, into a StepResult.

`launch` enqueues the forward pass, `sample` enqueues sampling, `collect` waits for the results. On
a GPU, `launch` and `sample` do not wait for the device: the next step reads the sampled tokens on
the device, so it can be launched while this step still runs (depth 1).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from yaie.core.batch import Batch, Row, StepResult
from yaie.layers.attention import Segment, StepInput
from yaie.models.model import DecoderModel
from yaie.runtime.graphs.capture import CudaRecorder, Recorder, StepGraph
from yaie.runtime.graphs.step_graphs import StepGraphs
from yaie.runtime.loop.engine_loop import FatalRunnerError, TokenMasks
from yaie.runtime.loop.step_cost import StepShape
from yaie.runtime.sampling.logprobs import score_pieces
from yaie.runtime.sampling.metadata import SamplingMetadata
from yaie.runtime.sampling.sampler import PendingDraw, RowMasks, Sampler, SamplerOutput
from yaie.runtime.sampling.verification import Drafts, drafts_of, last_tokens
from yaie.runtime.tensors.device_slots import Slots
from yaie.runtime.tensors.inputs import ForwardBatch, Ints, prepare_inputs, spans
from yaie.runtime.tensors.kv_tensors import KVTensors
from yaie.runtime.tensors.transfer import upload
from yaie.runtime.worker.pending_output import PendingOutput
from yaie.runtime.worker.pooling import Pooler
from yaie.runtime.worker.rehearsal import rehearse


@dataclass(slots=True)
class StepHandle:
    """A step in flight. `sampled`: [S] row number of each draw, ascending.

    `pending`: the rows that are not sampled yet, or None. `drafts`: None if each row has at most
    one draw.
    """

    sampled: Ints
    plan: SamplingMetadata
    outcome: PendingOutput
    pending: PendingDraw | None = None
    drafts: Drafts | None = None

    @property
    def logits(self) -> torch.Tensor | None:
        """Logits [S, vocab] of the rows that are not sampled yet."""
        return None if self.pending is None else self.pending.logits


class ModelRunner:
    """Implements the loop's Runner protocol for one device. Not thread-safe.

    Args:
        model: the loaded model.
        kv: its KV cache.
        max_num_seqs: number of slots; a Batch names slots 0 .. max_num_seqs - 1.
        max_model_len: longest sequence in tokens; the size of the block tables.
        capture_graphs: replay CUDA graphs if there is a GPU; `warm_up` captures them.
        max_mixed_tokens: maximum tokens of a captured step with prefill.
        drafts: capture steps with drafts, too.

    """

    def __init__(
        self,
        model: DecoderModel,
        kv: KVTensors,
        *,
        max_num_seqs: int,
        max_model_len: int,
        capture_graphs: bool = True,
        max_mixed_tokens: int = 1024,
        drafts: bool = False,
    ) -> None:
        self.model = model
        self.kv = kv
        self.device = model.options.device
        self.cuda = self.device.type == "cuda"
        self.depth = 1 if self.cuda else 0
        self.max_model_len = max_model_len
        max_pages = -(-max_model_len // kv.page_size) + 1
        self.slots = Slots(max_num_seqs, max_pages, self.device)
        self.sampler = Sampler(self.slots, model.vocab_size, self.device)
        self.pooler = Pooler(model, max_num_seqs)
        self.graphs: StepGraphs | None = None
        if self.cuda and capture_graphs:
            self.capture_with(CudaRecorder(), max_mixed_tokens, drafts=drafts)

    def capture_with(
        self, recorder: Recorder, max_mixed_tokens: int, *, drafts: bool = False
    ) -> None:
        """Let `warm_up` capture steps with `recorder`."""
        # Latent attention gathers pages, for which segments must not overlap: no mixed graphs.
        tables_in_place = all(layer.value_size for layer in self.model.caches)
        self.graphs = StepGraphs(
            recorder,
            self.model,
            self.kv,
            self.slots,
            max_model_len=self.max_model_len,
            max_mixed_tokens=max_mixed_tokens if tables_in_place else 0,
            drafts=drafts,
        )

    @torch.inference_mode()
    def warm_up(
        self, step_tokens: int = 1024, *, put_off: bool = False
    ) -> list[tuple[StepShape, float]]:
        """Compile kernels and capture graphs, so that no step of up to `step_tokens` tokens has to.

        Args:
            step_tokens: maximum tokens of a step.
            put_off: leave the graphs that others can replace to `warm_up_next`.

        Returns:
            Measured seconds of some steps; empty without graphs.

        """
        if self.cuda:
            rehearse(
                self,
                max_num_seqs=self.slots.scratch,
                longest=self.max_model_len,
                step_tokens=step_tokens,
                page_size=self.kv.page_size,
                vocab_size=self.model.vocab_size,
            )
        if self.graphs is None:
            return []
        self.graphs.capture(put_off=put_off)
        return self.graphs.measure()

    @torch.inference_mode()
    def warm_up_next(self) -> bool:
        """Capture a graph that `warm_up` has put off, in tens of milliseconds. False: none is left.

        Raises:
            FatalRunnerError: as in `launch`.

        """
        with self._fatal_device_errors():
            return self.graphs is not None and self.graphs.capture_next()

    @torch.inference_mode()
    def launch(self, batch: Batch) -> StepHandle:
        """Apply the batch's changes and enqueue its forward pass.

        Raises:
            ValueError: rows are out of order, or a sequence lacks the `history` that its sampling
                needs.
            torch.OutOfMemoryError: activations do not fit; slots and cache stay consistent.
            FatalRunnerError: the device reported an error that it does not recover from.

        """
        with self._fatal_device_errors():
            return self._launch(batch)

    def _launch(self, batch: Batch) -> StepHandle:
        changes = self.slots.apply(batch)
        if batch.inits:
            self.sampler.start(batch.inits)
            self.pooler.start(batch.inits)
        arrays = prepare_inputs(batch.rows, self.slots.host_tables, self.kv.page_size)
        sampled = arrays.sampled
        plan = self.sampler.requested.plan(arrays.slots[sampled], arrays.draw_positions)
        graph = self.graphs.find(arrays, plan, batch.rows) if self.graphs is not None else None
        inputs = arrays if graph is None else graph.inputs(arrays)
        parts = upload((*changes, *inputs), self.device)
        self.slots.write(*parts[: len(changes)])
        self._move_pages(batch)
        drafts = drafts_of(batch.rows, sampled) if arrays.has_drafts else None
        outcome = PendingOutput(
            batch.step_id, batch.rows, sampled, plan, self.device, has_drafts=drafts is not None
        )
        handle = StepHandle(sampled, plan, outcome, drafts=drafts)
        if graph is not None:
            graph.replay(parts[len(changes) :])
            self._take(handle, graph, arrays)
        elif batch.rows:
            step = _DeviceStep(*parts[len(changes) :])
            hidden = self._forward(arrays, step)
            self._report(handle, batch.rows, hidden)
            if len(sampled):
                handle.pending = self._pend(hidden, arrays, step)
            else:
                outcome.downloads.mark()  # lets `collect` wait although no token is copied
        return handle

    def _move_pages(self, batch: Batch) -> None:
        """Copy pages. Swap out first: the other copies and the rows may overwrite the pages that it
        reads.
        """
        if batch.swap_out:
            self.kv.swap_out(batch.swap_out)
        if batch.swap_in:
            self.kv.swap_in(batch.swap_in)
        if batch.copies:
            self.kv.copy(batch.copies)

    @torch.inference_mode()
    def sample(self, handle: StepHandle, masks: TokenMasks | None = None) -> None:
        """Enqueue the sampling of the step's tokens (a captured step may have done it already).

        Raises:
            ValueError: a mask for a row that does not sample, or whose request has no grammar.
            torch.OutOfMemoryError, FatalRunnerError: as in `launch`.

        """
        chosen = _masks(handle, masks)
        pending, handle.pending = handle.pending, None
        if pending is None:
            return
        with self._fatal_device_errors():
            drawn = self.sampler.draw(pending, handle.plan, chosen)
            if handle.drafts is not None:
                slots, tokens = last_tokens(handle.drafts, drawn.tokens)
                self.slots.last_token[slots] = tokens
            self._score(handle, pending.logits, drawn)

    def is_done(self, handle: StepHandle) -> bool:
        """Whether `collect` would not block."""
        return handle.outcome.downloads.done

    def collect(self, handle: StepHandle) -> StepResult:
        """Wait for the step and return its results.

        Raises:
            FatalRunnerError: as in `launch`.

        """
        with self._fatal_device_errors():
            handle.outcome.downloads.wait()
        return handle.outcome.result()

    @contextmanager
    def _fatal_device_errors(self) -> Iterator[None]:
        """Raise `FatalRunnerError` if the device is lost, for example after an illegal memory
        access: every later call would fail too. Libraries report such an error under different
        names, so the device is checked after every exception.
        """
        try:
            yield
        except Exception as error:
            if _is_lost(self.device):
                raise FatalRunnerError("The accelerator reported an error.") from error
            raise

    # -- the forward pass -------------------------------------------------------------------

    def _take(self, handle: StepHandle, graph: StepGraph, arrays: ForwardBatch) -> None:
        """Take the tokens that a captured step has sampled, or the logits of its sampling rows."""
        places = graph.places(arrays)
        if not len(places):
            handle.outcome.downloads.mark()
        elif graph.drawn is not None:
            handle.outcome.draw(graph.drawn, places)
        else:
            slots = arrays.slots[arrays.sampled]
            parts = upload((places, slots, arrays.draw_positions), self.device)
            place, slot, position = (part.long() for part in parts)
            handle.pending = PendingDraw(graph.logits[place], slot, position)

    def _forward(self, arrays: ForwardBatch, step: "_DeviceStep") -> torch.Tensor:
        slots = step.slots.long()
        ids = self._ids(step, slots[: arrays.n_decode])
        inputs = StepInput(
            step.positions.long(),
            step.slot_mapping.long(),
            self._segments(arrays, step, slots),
            self.kv.caches,
        )
        return self.model.forward(ids, inputs)

    def _pend(self, hidden: torch.Tensor, arrays: ForwardBatch, step: "_DeviceStep") -> PendingDraw:
        sampled, last = step.sampled.long(), step.last.long()
        return PendingDraw(
            self.model.logits(hidden if _is_all(arrays) else hidden[last]),
            step.slots.long()[sampled],
            step.draw_positions.long(),
        )

    def _ids(self, step: "_DeviceStep", decoding: torch.Tensor) -> torch.Tensor:
        if not len(decoding):
            return step.ids.long()
        return torch.cat((self.slots.last_token[decoding], step.ids))

    def _segments(
        self, arrays: ForwardBatch, step: "_DeviceStep", slots: torch.Tensor
    ) -> tuple[Segment, ...]:
        """Segments of the decode rows and of the other rows; an empty segment is left out."""
        n = arrays.n_decode
        decodes, others = slice(0, n), slice(n, len(arrays.slots))
        halves = (
            _RowRange(0, decodes, arrays.decode_start, step.decode_start),
            _RowRange(n, others, arrays.prefill_start, step.prefill_start),
        )
        return tuple(
            self._segment(half, arrays.seq_lens[half.rows], step.seq_lens[half.rows], slots)
            for half in halves
            if len(half.host_start) > 1
        )

    def _segment(
        self, half: "_RowRange", host_lens: Ints, seq_lens: torch.Tensor, slots: torch.Tensor
    ) -> Segment:
        return Segment(
            first=half.first,
            last=half.first + int(half.host_start[-1]),
            block_tables=self.slots.tables,
            seq_lens=seq_lens,
            query_start=half.query_start,
            max_query_len=int(np.diff(half.host_start).max()),
            max_seq_len=int(host_lens.max()),
            rows=slots[half.rows],
        )

    # -- vectors and log-probabilities --------------------------------------------------------

    def _report(self, handle: StepHandle, rows: Sequence[Row], hidden: torch.Tensor) -> None:
        """Compute the vectors and the prompt log-probabilities that the rows need."""
        if not any(row.pool or row.targets for row in rows):
            return
        for number, (row, (first, last)) in enumerate(zip(rows, spans(rows), strict=True)):
            if row.pool:
                vector = self.pooler.add(row, hidden[first:last])
                if vector is not None:
                    handle.outcome.pool(number, vector)
            if row.targets:
                own = hidden[first : first + len(row.targets)]
                self._score_prompt(handle, number, row, own)

    def _score_prompt(
        self, handle: StepHandle, number: int, row: Row, hidden: torch.Tensor
    ) -> None:
        (targets,) = upload((np.array(row.targets, dtype=np.int32),), self.device)
        scores = score_pieces(
            lambda first, last: self.model.logits(hidden[first:last]),
            targets.long(),
            self.sampler.requested.prompt_logprobs(row.slot),
            self.model.vocab_size,
        )
        handle.outcome.score_prompt(number, scores)

    def _score(self, handle: StepHandle, logits: torch.Tensor, drawn: SamplerOutput) -> None:
        handle.outcome.draw(drawn)
        scores = self.sampler.scores(logits, drawn.tokens, handle.plan)
        if scores is not None:
            handle.outcome.score(scores)


@dataclass(frozen=True, slots=True)
class _DeviceStep:
    """ForwardBatch on the device: flat int32 views of one uploaded buffer, in the same order."""

    ids: torch.Tensor
    positions: torch.Tensor
    slot_mapping: torch.Tensor
    slots: torch.Tensor
    seq_lens: torch.Tensor
    decode_start: torch.Tensor
    prefill_start: torch.Tensor
    sampled: torch.Tensor
    last: torch.Tensor
    draw_positions: torch.Tensor


class _RowRange(NamedTuple):
    """Rows of a step that become one segment: its first token, rows, and query offsets."""

    first: int
    rows: slice
    host_start: Ints
    query_start: torch.Tensor


def _is_lost(device: torch.device) -> bool:
    """Whether the device is in an error state, from which it does not recover: each call reports
    the error again.
    """
    if device.type != "cuda":
        return False
    try:
        torch.cuda.synchronize(device)
    except RuntimeError:
        return True
    return False


def _is_all(arrays: ForwardBatch) -> bool:
    """Whether every token of the step is the last of a sampling row (nothing to select)."""
    return len(arrays.last) == len(arrays.positions)


def _masks(handle: StepHandle, masks: TokenMasks | None) -> RowMasks | None:
    """Renumber the masks' rows from rows of the batch to draws of the step.

    Raises:
        ValueError: a mask for a row that does not sample, or without a grammar in the step.

    """
    if masks is None or not masks.rows:
        return None
    rows = np.array(masks.rows, dtype=np.int32)
    places = np.searchsorted(handle.sampled, rows).astype(np.int32)
    inside = places < len(handle.sampled)
    if not inside.all() or (handle.sampled[places] != rows).any() or not handle.plan.masked:
        raise ValueError("a mask for a row that does not sample by a grammar")
    return RowMasks(places, masks.words)
