"""RMSNorm, alone or fused with the residual addition before it."""

import torch

import yaie_kernels as ops
from yaie.layers.options import NamedTensors, TensorOptions


class RMSNorm:
    """x / rms(x) * weight over the last dimension."""

    def __init__(self, size: int, eps: float, *, options: TensorOptions) -> None:
        self.weight = options.empty(size)
        self.eps = eps

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Norm x [..., size] into a new tensor."""
        return ops.rms_norm(x, self.weight, self.eps)

    def add(self, x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """x, residual [T, size] -> (norm(x + residual), x + residual)."""
        return ops.add_rms_norm(x, residual, self.weight, self.eps)

    def parameters(self, name: str) -> NamedTensors:
        """Destination of `name + .weight`."""
        yield f"{name}.weight", self.weight
