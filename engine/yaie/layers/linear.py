"""Linear projections, which may stack several checkpoint matrices in one weight (qkv, gate_up)."""

from collections.abc import Mapping

import torch

import yaie_kernels as ops
from yaie.layers.norm import RMSNorm
from yaie.layers.options import NamedTensors, TensorOptions


class Linear:
    """y = x @ weight.T + bias.

    `parts` maps the checkpoint's matrices to their numbers of rows, in stacking order; each
    destination is a slice of the fused weight [sum of rows, in_features]. With a `gate`,
    y = gate(first half of the rows) * second half.
    """

    def __init__(
        self,
        in_features: int,
        parts: Mapping[str, int],
        *,
        bias: bool,
        gate: ops.Gate | None = None,
        options: TensorOptions,
    ) -> None:
        rows = sum(parts.values())
        self.parts = dict(parts)
        self.weight = options.empty(rows, in_features)
        self.bias = options.empty(rows) if bias else None
        self.gate = gate

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Map x [T, in_features] to [T, sum of rows], or half of them with a gate."""
        return ops.linear(x, self.weight, self.bias, gate=self.gate)

    def after(
        self, norm: RMSNorm, x: torch.Tensor, residual: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (self(norm(x + residual)), x + residual); residual None counts as 0."""
        return ops.norm_linear(
            x,
            residual,
            norm.weight,
            norm.eps,
            norm.offset,
            self.weight,
            self.bias,
            gate=self.gate,
        )

    def parameters(self, prefix: str) -> NamedTensors:
        """Destinations of `prefix + part + .weight|.bias`."""
        start = 0
        for name, rows in self.parts.items():
            yield f"{prefix}{name}.weight", self.weight[start : start + rows]
            if self.bias is not None:
                yield f"{prefix}{name}.bias", self.bias[start : start + rows]
            start += rows
