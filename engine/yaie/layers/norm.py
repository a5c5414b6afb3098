"""RMSNorm (Zhang & Sennrich 2019, arXiv:1910.07467), with or without the residual addition before
it.
"""

import torch

import yaie_kernels as ops
from yaie.layers.options import NamedTensors, TensorOptions


class RMSNorm:
    """x / rms(x) * (weight + offset) over the last dimension.

    The weight is stored as in the checkpoint, and weight + offset is computed in float32 at every
    use, because 1 + weight in half precision would lose the weight's last bits.
    """

    def __init__(
        self, size: int, eps: float, *, offset: float = 0.0, options: TensorOptions
    ) -> None:
        self.weight = options.empty(size)
        self.eps = eps
        self.offset = offset

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Norm x [..., size] into a new tensor."""
        return ops.rms_norm(x, self.weight, self.eps, self.offset)

    def add(
        self, x: torch.Tensor, residual: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (norm(x + residual), x + residual), all [T, size]; residual None counts as 0."""
        if residual is None:
            return self(x), x
        return ops.add_rms_norm(x, residual, self.weight, self.eps, self.offset)

    def parameters(self, name: str) -> NamedTensors:
        """Destination of `name + .weight`."""
        yield f"{name}.weight", self.weight
