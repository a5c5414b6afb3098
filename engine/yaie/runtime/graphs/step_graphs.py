"""CUDA graphs of steps: which there are, and which one runs a step.

All are captured before the engine is ready. A step never captures: where no graph of its size is
there, because memory was short, the next larger one serves, or the step runs eagerly.
"""

import logging
import time
from collections.abc import Sequence

import torch

from yaie.core.batch import Row
from yaie.models.model import DecoderModel
from yaie.runtime.graphs.capture import Recorder, StepGraph, Tail
from yaie.runtime.graphs.decode import DecodeGraphs
from yaie.runtime.graphs.mixed import CHUNKS, MixedGraphs
from yaie.runtime.loop.step_cost import StepLoad
from yaie.runtime.sampling.metadata import SamplingMetadata
from yaie.runtime.tensors.device_slots import Slots
from yaie.runtime.tensors.inputs import ForwardBatch
from yaie.runtime.tensors.kv_tensors import KVTensors
from yaie_api.logs import fields

log = logging.getLogger(__name__)


class StepGraphs:
    """Graphs of decode steps and of mixed steps.

    Args:
        recorder: records steps.
        model, kv, slots: as the runner has them.
        max_model_len: longest sequence in tokens.
        max_mixed_tokens: most tokens of a mixed graph; 0: only decodes are captured.

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
    ) -> None:
        self._recorder = recorder
        options, rows = model.options, slots.scratch + CHUNKS
        logits = torch.empty((rows, model.vocab_size), dtype=options.dtype, device=options.device)
        self.decode = DecodeGraphs(
            recorder, model, kv, slots, logits=logits, max_model_len=max_model_len
        )
        self.mixed = MixedGraphs(
            recorder, model, kv, slots, logits=logits, max_tokens=max_mixed_tokens
        )

    def find(
        self, arrays: ForwardBatch, plan: SamplingMetadata, rows: Sequence[Row]
    ) -> StepGraph | None:
        """Return the graph that runs a step; None: run it eagerly."""
        tail: Tail = plan.how if plan.plain else "logits"
        if not rows or any(row.pool or row.targets for row in rows):
            return None  # hidden states of other tokens than the last are wanted
        if arrays.n_decode == len(arrays.sampled) == len(rows):
            return self.decode.find(arrays, tail)
        return self.mixed.find(arrays, tail)

    def capture(self) -> None:
        """Capture all graphs, or as many as there is memory for."""
        started, free = time.monotonic(), self._recorder.free_bytes()
        try:
            for mixed in self.mixed.planned():
                self.mixed.capture(mixed)
            for decode in self.decode.planned():
                self.decode.capture(decode)
        except torch.OutOfMemoryError as error:
            log.warning("no memory for more CUDA graphs", extra=fields(reason=str(error)))
        log.info(
            "graphs are captured",
            extra=fields(
                decode=len(self.decode.captured),
                mixed=len(self.mixed.captured),
                mib=(free - self._recorder.free_bytes()) >> 20,
                seconds=round(time.monotonic() - started, 2),
            ),
        )

    def measure(self) -> list[tuple[StepLoad, float]]:
        """Seconds that some captured steps take on this device."""
        return [*self.decode.measure(), *self.mixed.measure()]
