"""Linear projections, several checkpoint matrices stacked into one weight (qkv, gate_up)."""

from collections.abc import Mapping

import torch
from torch.nn import functional

from yaie.layers.options import NamedTensors, TensorOptions


class Linear:
    """y = x @ weight.T + bias.

    `parts` names the checkpoint's matrices and their rows in stacking order; each destination is a
    slice of the one fused weight [sum of rows, in_features].
    """

    def __init__(
        self, in_features: int, parts: Mapping[str, int], *, bias: bool, options: TensorOptions
    ) -> None:
        rows = sum(parts.values())
        self.parts = dict(parts)
        self.weight = options.empty(rows, in_features)
        self.bias = options.empty(rows) if bias else None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Map x [T, in_features] to [T, sum of rows]."""
        return functional.linear(x, self.weight, self.bias)

    def parameters(self, prefix: str) -> NamedTensors:
        """Destinations of `prefix + part + .weight|.bias`."""
        start = 0
        for name, rows in self.parts.items():
            yield f"{prefix}{name}.weight", self.weight[start : start + rows]
            if self.bias is not None:
                yield f"{prefix}{name}.bias", self.bias[start : start + rows]
            start += rows
