"""A shortened model, which compiles kernels before the first request, runs all of the model's."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from engine.models import oracle
from engine.models.hand import load_runner
from engine.models.test_models_heads import hidden_states
from engine.models.variants import DENSE
from engine.models.variants_sparse import EXPERT_NAMES, LATENT_NAMES, SPARSE
from yaie.models.llama import Llama

oracle.VARIANTS.update(SPARSE)
IDS = tuple(range(3, 40))


class Operations(TorchDispatchMode):
    """Collects the operations that run, with the shapes and types of their tensors."""

    def __init__(self, *, shapes: bool) -> None:
        super().__init__()
        self.seen: set[object] = set()
        self._shapes = shapes

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
        shapes = tuple((tuple(tensor.shape), tensor.dtype) for tensor in tensors)
        self.seen.add((func, shapes) if self._shapes else func)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("variant", [*DENSE, *EXPERT_NAMES, *LATENT_NAMES])
def test_a_shortened_model_runs_every_operation_of_the_whole(variant: str, tmp_path: Path) -> None:
    """Shapes in a mixture of experts depend on the tokens, so they are not compared there."""
    oracle.save(variant, tmp_path)
    runner = load_runner(tmp_path)
    whole, found = runner.model, []
    assert isinstance(whole, Llama)
    hidden_states(runner, IDS)  # plans the attention, which is kept for later calls
    for model in (whole, whole.shortened()):
        runner.model = model
        with Operations(shapes=variant in DENSE) as operations:
            hidden_states(runner, IDS)
        found.append(operations.seen)
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("variant", "kept"),
    [
        ("llama-gqa", [0, 2]),
        ("qwen3-windows-by-type-yarn", [0, 1, 2]),
        ("qwen2-windows-from-layer", [0, 2]),
    ],
)
def test_a_shortened_model_keeps_its_first_layer_and_one_more_of_each_kind(
    variant: str, kept: list[int], tmp_path: Path
) -> None:
    oracle.save(variant, tmp_path)
    whole = load_runner(tmp_path).model
    assert isinstance(whole, Llama)
    layers = whole.shortened().layers
    assert [whole.layers.index(layer) for layer in layers] == kept
    assert len(whole.layers) == 3
