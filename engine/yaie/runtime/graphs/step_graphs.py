"""Captures the CUDA graphs of steps, and selects the graph that runs a step.

The main graphs are captured before the engine is ready, the others while it is idle. A step never
captures: if there is no graph of its size (yet), it runs on the next larger graph, or eagerly.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Protocol, TypeVar

import torch

from yaie.core.batch import Row
from yaie.models.model import DecoderModel
from yaie.runtime.graphs.capture import Recorder, StepGraph, Tail
from yaie.runtime.graphs.decode import DecodeGraphs
from yaie.runtime.graphs.mixed import CHUNKS, DRAFT_TOKENS, MixedGraphs
from yaie.runtime.loop.step_cost import StepShape
from yaie.runtime.sampling.metadata import SamplingMetadata
from yaie.runtime.tensors.device_slots import Slots
from yaie.runtime.tensors.inputs import ForwardBatch
from yaie.runtime.tensors.kv_tensors import KVTensors
from yaie_api.logs import fields

KeyT = TypeVar("KeyT")
log = logging.getLogger(__name__)


class _Kind(Protocol[KeyT]):
    """The common interface of `DecodeGraphs` and `MixedGraphs`."""

    def planned(self) -> Iterable[KeyT]: ...

    def is_main(self, key: KeyT, /) -> bool: ...

    def prepare(self, key: KeyT, /) -> None: ...

    def capture(self, key: KeyT, /) -> None: ...


class StepGraphs:
    """Graphs of decode steps and of mixed steps.

    Args:
        recorder: records steps.
        model, kv, slots: the runner's.
        max_model_len: longest sequence in tokens.
        max_mixed_tokens: maximum tokens of a mixed graph; 0: only decodes are captured.
        drafts: capture steps with drafts, too.

    """

    def __init__(
        self,
        recorder: Recorder,
        model: DecoderModel,
        kv: KVTensors,
        slots: Slots,
        *,
        max_model_len: int,
        max_mixed_tokens: int,
        drafts: bool,
    ) -> None:
        self._recorder = recorder
        options = model.options
        rows = max(slots.scratch + CHUNKS, DRAFT_TOKENS if drafts else 0)
        logits = torch.empty((rows, model.vocab_size), dtype=options.dtype, device=options.device)
        self.decode = DecodeGraphs(
            recorder, model, kv, slots, logits=logits, max_model_len=max_model_len
        )
        self.mixed = MixedGraphs(
            recorder,
            model,
            kv,
            slots,
            logits=logits,
            max_tokens=max_mixed_tokens,
            drafts=drafts,
        )
        self._main: deque[Callable[[], None]] = deque()
        self._rest: deque[Callable[[], None]] = deque()
        self._bytes = 0

    def find(
        self, arrays: ForwardBatch, plan: SamplingMetadata, rows: Sequence[Row]
    ) -> StepGraph | None:
        """Return the graph that runs a step; None: run it eagerly."""
        tail: Tail = plan.how if plan.plain else "logits"
        chunks = rows[arrays.n_decode :]
        if not rows or any(row.pool or row.targets for row in chunks):
            return None  # graphs keep only the hidden states of the tokens that are sampled after
        if arrays.n_decode == len(arrays.sampled) == len(rows):
            return self.decode.find(arrays, tail)
        return self.mixed.find(arrays, tail)

    def capture(self, *, put_off: bool = False) -> None:
        """Capture all graphs, or as many as fit in memory.

        Args:
            put_off: capture the main ones only, and leave the others to `capture_next`.

        """
        started = time.monotonic()
        self._plan(self.mixed)
        self._plan(self.decode)
        self._capture(self._main)
        if not put_off:
            self._capture(self._rest)
        self._report(seconds=round(time.monotonic() - started, 2))

    def capture_next(self) -> bool:
        """Capture one graph that was put off; False: none is left."""
        if not self._rest:
            return False
        self._capture(self._rest, most=1)
        if not self._rest:
            self._report()
        return True

    def _plan(self, graphs: "_Kind[KeyT]") -> None:
        """Queue the preparation of all graphs before their captures, so that captures that are put
        off compile nothing.
        """
        for key in graphs.planned():
            self._main.append(partial(graphs.prepare, key))
        for key in graphs.planned():
            captures = self._main if graphs.is_main(key) else self._rest
            captures.append(partial(graphs.capture, key))

    def _capture(self, captures: deque[Callable[[], None]], *, most: int | None = None) -> None:
        """Run the first `most` queued captures, or all. If memory runs out, drop the rest."""
        free = self._recorder.free_bytes()
        try:
            for _ in range(len(captures) if most is None else most):
                captures.popleft()()
        except torch.OutOfMemoryError as error:
            self._main.clear()
            self._rest.clear()
            log.warning("no memory for more CUDA graphs", extra=fields(reason=str(error)))
        self._bytes += free - self._recorder.free_bytes()

    def _report(self, **more: object) -> None:
        log.info(
            "graphs are captured",
            extra=fields(
                decode=len(self.decode.captured),
                mixed=len(self.mixed.captured),
                when_idle=len(self._rest),
                mib=self._bytes >> 20,
                **more,
            ),
        )

    def measure(self) -> list[tuple[StepShape, float]]:
        """Measured seconds of some captured steps on this device."""
        return [*self.decode.measure(), *self.mixed.measure()]
