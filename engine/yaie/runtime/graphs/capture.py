"""What decode and mixed graphs share: how a step is recorded, which tail may stand for which."""

from collections.abc import Callable
from typing import Final, Literal, Protocol, TypeVar

import torch

from yaie.runtime import phases
from yaie.runtime.sampling.metadata import How
from yaie.runtime.sampling.sampler import SamplerOutput
from yaie.runtime.tensors.inputs import ForwardBatch, Ints

T = TypeVar("T")

Tail = How | Literal["logits"]
"""How a captured step draws, or that it ends at the logits."""
STAND_INS: Final[dict[Tail, tuple[Tail, ...]]] = {
    "greedy": ("greedy", "plain", "filtered", "logits"),
    "plain": ("plain", "filtered", "logits"),
    "filtered": ("filtered", "logits"),
    "logits": ("logits",),
}
"""Tails whose graph gives a step the same tokens, the fastest first."""


class StepGraph(Protocol):
    """A captured step of N rows."""

    @property
    def logits(self) -> torch.Tensor:
        """[N, vocab] what a step without a draw ends at. All graphs write the same memory: a graph
        that kept logits of its own would keep a quarter of a gigabyte.
        """

    @property
    def drawn(self) -> SamplerOutput | None:
        """What the step has drawn; the next replay of any graph may overwrite it."""

    def inputs(self, arrays: ForwardBatch) -> tuple[Ints, ...]:
        """What `replay` needs of a step, padded to the graph's size."""

    def places(self, arrays: ForwardBatch) -> Ints:
        """Which of the N each sampling row of the step is."""

    def replay(self, inputs: tuple[torch.Tensor, ...]) -> None:
        """Run the step with what `inputs` gave, brought to the device."""


class Graph(Protocol):
    """A recorded step."""

    def replay(self) -> None:
        """Run it again, on what its inputs hold now."""


class Recorder(Protocol):
    """Records steps into graphs that share one memory pool."""

    def run(self, step: Callable[[], object]) -> None:
        """Run a step outside a graph: kernels compile here, libraries make their workspaces."""

    def record(self, step: Callable[[], T]) -> tuple[Graph, T]:
        """Record a step that has run before; replays write what `step` returned.

        Raises:
            torch.OutOfMemoryError: there is no memory for the graph's activations.

        """

    def seconds(self, graph: Graph) -> float:
        """How long a replay takes on the device."""

    def free_bytes(self) -> int:
        """Memory that the device has left."""


class CudaRecorder:
    """Records on a stream of its own."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # untyped in torch

    def run(self, step: Callable[[], object]) -> None:
        """Run a step outside a graph: kernels compile here, libraries make their workspaces."""
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            step()
        torch.cuda.current_stream().wait_stream(self._stream)

    def record(self, step: Callable[[], T]) -> tuple[torch.cuda.CUDAGraph, T]:
        """`torch.cuda.graph` would synchronise, collect garbage and empty the allocator's cache
        first: a tenth of a second for each graph.
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
        graph.replay()  # the first one brings the graph to the device
        began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        began.record()
        graph.replay()
        ended.record()
        ended.synchronize()
        return float(began.elapsed_time(ended)) / 1e3

    def free_bytes(self) -> int:
        torch.cuda.synchronize()
        return torch.cuda.mem_get_info()[0]
