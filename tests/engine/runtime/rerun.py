"""Graphs for machines without a GPU: a replay runs the step's code again, on the same buffers.

What it keeps of a real graph: inputs are read when it is replayed, outputs stand where the first
run has put them.
"""

from collections.abc import Callable
from typing import TypeVar

import torch

from yaie.runtime.graphs.capture import Graph

T = TypeVar("T")


class RerunGraph:
    def __init__(self, step: Callable[[], object]) -> None:
        self.step = step
        self.outputs = step()
        self.n_replays = 0

    def replay(self) -> None:
        self.n_replays += 1
        for kept, new in zip(_tensors(self.outputs), _tensors(self.step()), strict=True):
            kept.copy_(new)


class RerunRecorder:
    """Implements `capture.Recorder`. `graphs`: all that were recorded. `n_runs`: steps run outside
    a graph.
    """

    def __init__(self) -> None:
        self.graphs: list[RerunGraph] = []
        self.n_runs = 0

    def run(self, step: Callable[[], object]) -> None:
        self.n_runs += 1
        step()

    def record(self, step: Callable[[], T]) -> tuple[Graph, T]:
        graph = RerunGraph(step)
        self.graphs.append(graph)
        return graph, graph.outputs

    def seconds(self, graph: Graph) -> float:
        return 1e-3

    def free_bytes(self) -> int:
        return 0


def _tensors(value: object) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, tuple):
        return [tensor for part in value for tensor in _tensors(part)]
    return []
