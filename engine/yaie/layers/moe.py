"""Mixture of experts (Shazeer et al. 2017, arXiv:1701.06538): a router chooses a few experts for
each token, and their results are mixed.

Routing and the experts' products are kernels (`ops.route_experts`, `ops.moe_mlp`); this module has
the stacked weights and their names in checkpoints.
"""

from typing import TYPE_CHECKING, NamedTuple

import torch

import yaie_kernels as ops
from yaie.layers.linear import Linear
from yaie.layers.norm import RMSNorm
from yaie.layers.options import Alternative, Alternatives, NamedTensors, TensorOptions
from yaie.model_config.moe import MoEConfig

if TYPE_CHECKING:
    from yaie.layers.interfaces import FeedForward


class ExpertNames(NamedTuple):
    """Names of an expert's three matrices in a checkpoint."""

    gate: str = "gate_proj"
    up: str = "up_proj"
    down: str = "down_proj"


class Router:
    """Chooses experts and their shares. Scores and shares are float32 for every dtype."""

    def __init__(self, moe: MoEConfig, hidden_size: int, options: TensorOptions) -> None:
        self.moe = moe
        wide = options._replace(dtype=torch.float32)
        self.weight = (wide if moe.float32_router else options).empty(moe.num_experts, hidden_size)
        self.bias = wide.empty(moe.num_experts) if moe.correction_bias else None

    def __call__(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """X [T, hidden] -> (experts [T, K] int64, shares [T, K] float32)."""
        moe = self.moe
        return ops.route_experts(
            ops.linear(x.to(self.weight.dtype), self.weight),
            self.bias,
            top_k=moe.experts_per_token,
            sigmoid=moe.scoring == "sigmoid",
            normalize=moe.normalize,
            scale=moe.scale,
            groups=moe.groups,
            kept_groups=moe.kept_groups,
            group_best=moe.group_best,
        )

    def parameters(self, prefix: str) -> NamedTensors:
        """Checkpoint names and destinations."""
        yield f"{prefix}gate.weight", self.weight
        if self.bias is not None:
            yield f"{prefix}gate.e_score_correction_bias", self.bias


class Experts:
    """The stacked weights of all experts: gate_up [E, 2 I, hidden], down [E, hidden, I]."""

    def __init__(
        self, moe: MoEConfig, hidden_size: int, names: ExpertNames, options: TensorOptions
    ) -> None:
        self.inner = moe.intermediate_size
        self.names = names
        self.gate_up = options.empty(moe.num_experts, 2 * self.inner, hidden_size)
        self.down = options.empty(moe.num_experts, hidden_size, self.inner)

    def __call__(
        self, x: torch.Tensor, experts: torch.Tensor, shares: torch.Tensor
    ) -> torch.Tensor:
        """Sum the results of experts [T, K] for x [T, hidden], weighted by shares [T, K]."""
        return ops.moe_mlp(x, self.gate_up, self.down, experts, shares)

    def parameters(self, prefix: str) -> NamedTensors:
        """Names and destinations of single matrices, as in most checkpoints."""
        for expert, (gate_up, down) in enumerate(zip(self.gate_up, self.down, strict=True)):
            at = f"{prefix}experts.{expert}."
            yield f"{at}{self.names.gate}.weight", gate_up[: self.inner]
            yield f"{at}{self.names.up}.weight", gate_up[self.inner :]
            yield f"{at}{self.names.down}.weight", down

    def alternatives(self, prefix: str, stacked: str) -> Alternatives:
        """Tensors that stack all experts, named by `stacked`, instead of single matrices."""
        names = [name for name, _ in self.parameters(prefix)]
        downs = tuple(names[2::3])
        gates_and_ups = tuple(name for name in names if name not in set(downs))
        yield Alternative(f"{stacked}experts.gate_up_proj", self.gate_up, gates_and_ups)
        yield Alternative(f"{stacked}experts.down_proj", self.down, downs)


class MoE:
    """Router and experts, and possibly a shared expert: an MLP for every token.

    Args:
        moe: sizes and routing rules.
        hidden_size: width of a token.
        options: device and dtype.
        place: name of the block in the checkpoint.
        names: names of an expert's matrices.
        shared: name and MLP of the shared expert, or None.

    """

    def __init__(
        self,
        moe: MoEConfig,
        hidden_size: int,
        options: TensorOptions,
        *,
        place: str = "mlp",
        names: ExpertNames = ExpertNames(),  # noqa: B008 - frozen
        shared: "tuple[str, FeedForward] | None" = None,
    ) -> None:
        self.router = Router(moe, hidden_size, options)
        self.experts = Experts(moe, hidden_size, names, options)
        self.place = place
        self.shared = shared
        self.shared_gate = (
            Linear(hidden_size, {"shared_expert_gate": 1}, bias=False, options=options)
            if moe.shared_gate
            else None
        )

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Map x [T, hidden] to [T, hidden]."""
        mixed = self.experts(x, *self.router(x))
        if self.shared is None:
            return mixed
        shared = self.shared[1](x)
        if self.shared_gate is not None:
            shared = self.shared_gate(x).sigmoid() * shared
        return mixed + shared

    def after(
        self, norm: RMSNorm, x: torch.Tensor, residual: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (self(norm(x + residual)), x + residual), all [T, hidden]."""
        x, residual = norm.add(x, residual)
        return self(x), residual

    def parameters(self, prefix: str) -> NamedTensors:
        """Checkpoint names and destinations; `prefix` ends with `mlp.`."""
        at = self._at(prefix)
        yield from self.router.parameters(at)
        yield from self.experts.parameters(at)
        if self.shared is not None:
            name, shared = self.shared
            yield from shared.parameters(f"{at}{name}.")
        if self.shared_gate is not None:
            yield from self.shared_gate.parameters(at)

    def alternatives(self, prefix: str) -> Alternatives:
        """Other names and shapes that the same tensors may have in checkpoints."""
        at = self._at(prefix)
        yield from self.experts.alternatives(at, prefix)
        if at != prefix:
            yield Alternative(f"{prefix}gate.weight", self.router.weight, (f"{at}gate.weight",))

    def _at(self, prefix: str) -> str:
        return f"{prefix.removesuffix('mlp.')}{self.place}."
