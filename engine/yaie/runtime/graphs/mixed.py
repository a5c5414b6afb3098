"""CUDA graphs of steps with prefill or drafts, with or without decodes.

One graph runs up to `tokens` tokens: first those of up to `rows` decode rows, then those of rows
that bring token ids: prefill chunks and drafts. The border between the two may be anywhere: both
attention calls read their rows from the device, use the slots' block tables in place and write one
output:

    token axis    d d d d d p p p p p p p p p p p . . .      d: decodes, p: prefill, .: padding
    decode call   [0 ............ rows)                      rows past the last decode are empty
    extend call   [0 ............................ tokens)    row b has query_start[b:b+2]

The input is one int32 buffer. Padding tokens write to the scratch page; their results are not used.
The head and the sampling run on the last token of each row only. In graphs for drafts the head runs
on every token that the step samples after, and sampling follows the graph.
"""

from collections.abc import Iterator
from dataclasses import dataclass
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

CONTEXT = 2048
"""Context length, in tokens, for which the decodes' attention is split; any other gives correct
results too.
"""
CHUNKS = 16
"""Rows with token ids of a graph; a step with more of them runs eagerly. Graphs for drafts have
more: half of their tokens.
"""
TOKENS = (*range(64, 385, 64), 512, 640, 768, 1024, *range(1536, 4097, 512))
"""Tokens of graphs. Between 384 and 1024, these are the sizes at which matrix products are not much
slower than at the previous size (H200).
"""
ROWS = (16, 64, 128, 256, 512, 1024)
MAIN_ROWS = (16, 64)
"""Decode rows of graphs that are captured before the engine is ready, together with the largest.
The other graphs only reduce padding.
"""
PADDING = -1
"""Replaces the id of a decode row's token, which the graph reads from the row's slot."""
LOGITS_TOKENS, LOGITS_ROWS = 256, (64, 256)
"""Steps that end with the logits are rarer, so they have fewer graphs and are padded more."""
DRAFT_TOKENS = 1024
"""Maximum tokens of graphs for drafts: these steps keep the logits of many tokens."""


class MixedKey(NamedTuple):
    tokens: int
    rows: int
    tail: Tail
    drafts: bool = False


class _Layout(NamedTuple):
    """Slices of the int32 input buffer, for T tokens, R decode rows and C rows with token ids."""

    ids: slice  # [T] PADDING for decode rows
    positions: slice  # [T]
    slot_mapping: slice  # [T]
    slots: slice  # [R + C] the scratch slot for padding rows
    seq_lens: slice  # [R + C] 0 for padding rows
    decode_start: slice  # [R + 1]
    chunk_start: slice  # [C + 1] offsets on the whole token axis
    last: slice  # [R + C] index of each row's last token; with drafts [T] of the token of each draw

    @classmethod
    def of(cls, tokens: int, rows: int, *, drafts: bool = False) -> "_Layout":
        chunks = max_chunks(tokens, drafts=drafts)
        both, last = rows + chunks, tokens if drafts else rows + chunks
        sizes = (tokens, tokens, tokens, both, both, rows + 1, chunks + 1, last)
        ends = np.cumsum(sizes).tolist()
        return cls(*(slice(end - size, end) for end, size in zip(ends, sizes, strict=True)))


def max_chunks(tokens: int, *, drafts: bool) -> int:
    """Maximum rows with token ids of a graph. A row with a draft has at least two tokens."""
    return max(tokens // 2, CHUNKS) if drafts else CHUNKS


@dataclass(frozen=True, slots=True)
class MixedGraph:
    """A captured step of up to `key.tokens` tokens and `key.rows` decode rows."""

    key: MixedKey
    scratch: int
    graph: Graph
    buffer: torch.Tensor
    logits: torch.Tensor
    drawn: SamplerOutput | None

    def inputs(self, arrays: ForwardBatch) -> tuple[Ints, ...]:
        """The contents of the whole input buffer."""
        return (pack(arrays, self.key, self.scratch),)

    def places(self, arrays: ForwardBatch) -> Ints:
        """Decode row i is row i of the graph, and the other rows start at row `key.rows`. In a
        graph for drafts, draw i is row i.
        """
        n, sampled = arrays.n_decode, arrays.sampled
        if self.key.drafts:
            return np.arange(len(sampled), dtype=np.int32)
        return np.where(sampled < n, sampled, sampled - n + self.key.rows).astype(np.int32)

    def replay(self, inputs: tuple[torch.Tensor, ...]) -> None:
        """Run the step."""
        self.buffer.copy_(inputs[0])
        self.graph.replay()


def pack(arrays: ForwardBatch, key: MixedKey, scratch: int) -> Ints:
    """Lay out a step as the int32 input buffer of the graph of `key`."""
    rows, layout = key.rows, _Layout.of(key.tokens, key.rows, drafts=key.drafts)
    n_decode, n_tokens, n_chunks = arrays.n_decode, len(arrays.positions), arrays.n_chunks
    buffer = np.zeros(layout.last.stop, dtype=np.int32)

    ids = buffer[layout.ids]
    ids[:n_decode] = PADDING
    ids[n_decode:n_tokens] = arrays.ids
    buffer[layout.positions][:n_tokens] = arrays.positions
    buffer[layout.slot_mapping][:n_tokens] = arrays.slot_mapping

    chunk = slice(rows, rows + n_chunks)
    slots, seq_lens = buffer[layout.slots], buffer[layout.seq_lens]
    slots.fill(scratch)
    slots[:n_decode], slots[chunk] = arrays.slots[:n_decode], arrays.slots[n_decode:]
    seq_lens[:n_decode] = arrays.seq_lens[:n_decode]
    seq_lens[chunk] = arrays.seq_lens[n_decode:]

    starts = buffer[layout.decode_start]
    starts.fill(n_decode)
    starts[: n_decode + 1] = arrays.decode_start
    ends = buffer[layout.chunk_start]
    ends.fill(n_tokens)
    ends[: n_chunks + 1] = arrays.prefill_start + n_decode

    last = buffer[layout.last]
    if key.drafts:
        last[: len(arrays.last)] = arrays.last
    else:
        last[:n_decode] = np.arange(n_decode)
        last[chunk] = arrays.prefill_start[1:] + n_decode - 1
    return buffer


class MixedGraphs:
    """Graphs by `MixedKey`, sharing one memory pool and one input buffer.

    Args:
        recorder: records steps.
        model, kv, slots: the runner's.
        logits: [rows, vocab] memory for steps that end without sampling; rows: max_num_seqs +
            CHUNKS, and with `drafts` at least DRAFT_TOKENS.
        max_tokens: maximum tokens of a graph.
        drafts: capture steps with drafts, too.

    """

    def __init__(
        self,
        recorder: Recorder,
        model: DecoderModel,
        kv: KVTensors,
        slots: Slots,
        *,
        logits: torch.Tensor,
        max_tokens: int,
        drafts: bool,
    ) -> None:
        self.model = model
        self._shortened = model.shortened()
        self.kv = kv
        self.slots = slots
        max_num_seqs = slots.scratch
        self._rows = [rows for rows in ROWS if rows < max_num_seqs] + [max_num_seqs]
        self._tokens = [tokens for tokens in TOKENS if tokens <= max_tokens]
        self.captured: dict[MixedKey, MixedGraph] = {}
        self._logits = logits
        self._recorder = recorder
        self._drafts = drafts
        self._ran: set[tuple[str, bool, int]] = set()
        most = max([*self._tokens, max_num_seqs])
        largest = _Layout.of(most, max_num_seqs, drafts=drafts).last.stop
        self._buffer = torch.zeros(largest, dtype=torch.int32, device=model.options.device)

    def find(self, arrays: ForwardBatch, tail: Tail) -> MixedGraph | None:
        """Return the smallest captured graph that holds a step; None: run it eagerly."""
        n_tokens, n_decode, drafts = len(arrays.positions), arrays.n_decode, arrays.has_drafts
        if drafts:
            tail = "logits"  # a draft is verified after the sampling
        for tokens in self._tokens:
            if tokens < n_tokens or arrays.n_chunks > max_chunks(tokens, drafts=drafts):
                continue
            for rows in self._rows:
                if rows < n_decode:
                    continue
                for stand_in in STAND_INS[tail]:
                    found = self.captured.get(MixedKey(tokens, rows, stand_in, drafts))
                    if found is not None:
                        return found
        return None

    def planned(self) -> Iterator[MixedKey]:
        """Graphs to capture, the largest first: it determines the size of the memory pool."""
        for tokens in reversed(self._tokens):
            for rows in reversed(self._rows):
                if rows <= tokens:
                    yield MixedKey(tokens, rows, "plain")
        few_tokens = {tokens for tokens in self._tokens if tokens % LOGITS_TOKENS == 0}
        few_rows = {rows for rows in self._rows if rows in LOGITS_ROWS}
        for tokens in sorted(few_tokens | set(self._tokens[-1:]), reverse=True):
            for rows in sorted(few_rows | {self._rows[-1]}, reverse=True):
                if rows <= tokens:
                    yield MixedKey(tokens, rows, "logits")
        if self._drafts:
            for tokens in reversed(self._tokens):
                for rows in (rows for rows in self._rows if rows <= tokens <= DRAFT_TOKENS):
                    yield MixedKey(tokens, rows, "logits", drafts=True)

    def is_main(self, key: MixedKey) -> bool:
        """Whether a graph is captured before the engine is ready. Until the others are captured, a
        graph with more rows replaces them.
        """
        return key.tail == "logits" or key.rows in {*MAIN_ROWS, self._rows[-1]}

    def prepare(self, key: MixedKey) -> None:
        """Compile the step's kernels: run them outside a graph, on padding."""
        layout = _Layout.of(key.tokens, key.rows, drafts=key.drafts)
        self._buffer.zero_()
        self._buffer[layout.slots] = self.slots.scratch
        sizes = {("tokens", key.drafts, key.tokens), ("rows", key.drafts, key.rows)}
        if not sizes <= self._ran:  # no kernel depends on both sizes
            self._recorder.run(lambda: self._step(layout, key, self._shortened))
            self._ran |= sizes

    def capture(self, key: MixedKey) -> None:
        """Record one graph, on padding.

        Raises:
            torch.OutOfMemoryError: there is no memory for the graph.

        """
        self.prepare(key)
        layout = _Layout.of(key.tokens, key.rows, drafts=key.drafts)
        graph, drawn = self._recorder.record(lambda: self._step(layout, key, self.model))
        self.captured[key] = MixedGraph(
            key,
            self.slots.scratch,
            graph,
            self._buffer[: layout.last.stop],
            self._logits[: layout.last.stop - layout.last.start],
            drawn,
        )

    def measure(self) -> Iterator[tuple[StepShape, float]]:
        """Seconds of steps with prefill and the smallest number of decode rows that has graphs,
        measured by replays on padding.
        """
        for key, graph in self.captured.items():
            prefill = key.tokens - key.rows
            if key.tail == "plain" and key.rows == self._rows[0] and prefill > 0:
                self._buffer.zero_()
                self._buffer[_Layout.of(key.tokens, key.rows).slots] = self.slots.scratch
                yield StepShape(key.rows, 1, prefill), self._recorder.seconds(graph.graph)

    def _step(self, layout: _Layout, key: MixedKey, model: DecoderModel) -> SamplerOutput | None:
        buffer, rows = self._buffer, key.rows
        longest = self.slots.tables.shape[1] * self.kv.page_size
        slots, seq_lens = buffer[layout.slots], buffer[layout.seq_lens]
        ids = buffer[layout.ids].long()
        fed = self.slots.last_token[slots[:rows]]
        ids[:rows] = torch.where(ids[:rows] == PADDING, fed, ids[:rows])
        decodes = Segment(
            first=0,
            last=rows,
            block_tables=self.slots.tables,
            seq_lens=seq_lens[:rows],
            query_start=buffer[layout.decode_start],
            max_query_len=1,
            max_seq_len=min(longest, CONTEXT),
            rows=slots[:rows],
        )
        chunks = Segment(
            first=0,
            last=key.tokens,
            block_tables=self.slots.tables,
            seq_lens=seq_lens[rows:],
            query_start=buffer[layout.chunk_start],
            max_query_len=key.tokens,
            max_seq_len=longest,
            rows=slots[rows:],
        )
        step = StepInput(
            buffer[layout.positions].long(),
            buffer[layout.slot_mapping].long(),
            (decodes, chunks),
            self.kv.caches,
        )
        hidden = model.forward(ids, step)
        logits = model.logits(hidden[buffer[layout.last].long()])
        if key.tail == "logits":
            self._logits[: len(logits)].copy_(logits)
            return None
        return draw(logits, self.slots, slots.long(), seq_lens.long(), how=key.tail)
