"""Common parts of decode and mixed graphs: recording steps, and which tails can replace a tail."""

from collections.abc import Callable
from typing import Final, Literal, Protocol, TypeVar

import torch

from yaie.runtime import phases
from yaie.runtime.sampling.metadata import How
from yaie.runtime.sampling.sampler import SamplerOutput
from yaie.runtime.tensors.inputs import ForwardBatch, Ints

T = TypeVar("T")

Tail = How | Literal["logits"]
"""How a captured step ends: with a kind of sampling, or with the logits."""
STAND_INS: Final[dict[Tail, tuple[Tail, ...]]] = {
    "greedy": ("greedy", "plain", "filtered", "logits"),
    "plain": ("plain", "filtered", "logits"),
    "filtered": ("filtered", "logits"),
    "logits": ("logits",),
}
"""For each tail, the tails whose graphs give the same tokens, the fastest first."""


class StepGraph(Protocol):
    """A captured step of N rows."""

    @property
    def logits(self) -> torch.Tensor:
        """[N, vocab] the logits of a step that ends without sampling. All graphs write to the same
        memory, because separate logits would take a quarter of a gigabyte per graph.
        """

    @property
    def drawn(self) -> SamplerOutput | None:
        """The sampled tokens; the next replay of any graph may overwrite them. None: the step ends
        with the logits.
        """

    def inputs(self, arrays: ForwardBatch) -> tuple[Ints, ...]:
        """The inputs of `replay` for a step, padded to the graph's size."""

    def places(self, arrays: ForwardBatch) -> Ints:
        """[S] the graph's row (0 .. N - 1) of each sampling row of the step."""

    def replay(self, inputs: tuple[torch.Tensor, ...]) -> None:
        """Run the step on what `inputs` returned, copied to the device."""


class Graph(Protocol):
    """A recorded step."""

    def replay(self) -> None:
        """Run the recorded step again, on the present contents of its input tensors."""


class Recorder(Protocol):
    """Records steps into graphs that share one memory pool."""

    def run(self, step: Callable[[], object]) -> None:
        """Run a step outside a graph: this compiles kernels and allocates libraries' workspaces."""

    def record(self, step: Callable[[], T]) -> tuple[Graph, T]:
        """Record a step that has run before. Replays overwrite the tensors that `step` returned.

        Raises:
            torch.OutOfMemoryError: there is no memory for the graph's activations.

        """

    def seconds(self, graph: Graph) -> float:
        """Seconds that a replay takes on the device."""

    def free_bytes(self) -> int:
        """Free memory of the device."""


class CudaRecorder:
    """Records on its own CUDA stream."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # untyped in torch

    def run(self, step: Callable[[], object]) -> None:
        """Run a step outside a graph: this compiles kernels and allocates libraries' workspaces."""
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            step()
        torch.cuda.current_stream().wait_stream(self._stream)

    def record(self, step: Callable[[], T]) -> tuple[torch.cuda.CUDAGraph, T]:
        """Record a step. `torch.cuda.graph` would first synchronise, collect garbage and empty the
        allocator's cache, which takes a tenth of a second for each graph.
        """
        graph = torch.cuda.CUDAGraph()
        with phases.declared(phases.CAPTURE):
            self._stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._stream):
                graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
                try:
                    result = step()
                finally:
                    graph.capture_end()
            torch.cuda.current_stream().wait_stream(self._stream)
        return graph, result

    def seconds(self, graph: Graph) -> float:
        graph.replay()  # the first replay uploads the graph
        began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        began.record()
        graph.replay()
        ended.record()
        ended.synchronize()
        return float(began.elapsed_time(ended)) / 1e3

    def free_bytes(self) -> int:
        torch.cuda.synchronize()
        return torch.cuda.mem_get_info()[0]
