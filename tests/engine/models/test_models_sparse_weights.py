"""Checkpoints of mixtures: expert by expert, stacked, with layers that are not run."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.models import oracle
from engine.models.hand import load_runner
from engine.models.variants_sparse import SPARSE
from yaie.checkpoint import weights
from yaie.checkpoint.source import read_config
from yaie.layers.options import TensorOptions
from yaie.model_config import parser
from yaie.models import registry
from yaie_api.errors import InvalidRequestError

oracle.VARIANTS.update(SPARSE)
ONE_EACH = ("mixtral", "qwen2-moe", "qwen3-moe-shares-of-chosen", "deepseek-v3")


def tensors(folder: Path) -> dict[str, torch.Tensor]:
    return dict(load_runner(folder).model.parameters())


def rewrite(folder: Path, change: dict[str, torch.Tensor | None]) -> None:
    """Add tensors to the checkpoint, or take away where None."""
    file = folder / "model.safetensors"
    held = load_file(file) | {name: value for name, value in change.items() if value is not None}
    for name in (name for name, value in change.items() if value is None):
        del held[name]
    save_file(held, file)


def names(folder: Path) -> Iterator[str]:
    yield from load_file(folder / "model.safetensors")


@pytest.mark.parametrize("variant", ONE_EACH)
def test_stacked_experts_load_as_single_ones_do(variant: str, tmp_path: Path) -> None:
    """Transformers writes either; the stacked file has no matrix of a single expert."""
    single = oracle.save(variant, tmp_path / "single")
    stacked = oracle.save(variant, tmp_path / "stacked", save_original_format=False)
    assert any(".experts.1." in name for name in names(single))
    assert not any(".experts.1." in name for name in names(stacked))
    assert any(name.endswith(".mlp.experts.gate_up_proj") for name in names(stacked))
    first, second = tensors(single), tensors(stacked)
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name]), name


@pytest.mark.parametrize("stacked", [False, True])
def test_a_missing_expert_is_named(stacked: bool, tmp_path: Path) -> None:
    folder = oracle.save("qwen2-moe", tmp_path, save_original_format=not stacked)
    lost = "experts.down_proj" if stacked else "experts.4.up_proj.weight"
    rewrite(folder, {f"model.layers.2.mlp.{lost}": None})
    with pytest.raises(InvalidRequestError, match=r"lacks \d+ tensors: model\.layers\.2\.mlp"):
        load_runner(folder)


def test_an_expert_too_many_is_refused(tmp_path: Path) -> None:
    folder = oracle.save("mixtral", tmp_path)
    name = "model.layers.0.block_sparse_moe.experts.4.w1.weight"
    rewrite(folder, {name: torch.zeros(112, 64)})
    with pytest.raises(InvalidRequestError, match=r"experts\.4\.w1"):
        load_runner(folder)


def test_stacked_experts_of_another_shape_are_refused(tmp_path: Path) -> None:
    folder = oracle.save("mixtral", tmp_path, save_original_format=False)
    rewrite(folder, {"model.layers.1.mlp.experts.gate_up_proj": torch.zeros(4, 64, 224)})
    with pytest.raises(InvalidRequestError, match=r"\[4, 64, 224\]"):
        load_runner(folder)


def test_layers_that_draft_later_tokens_are_left_out(tmp_path: Path) -> None:
    """DeepSeek-V3 has one behind its last layer; anything further is another model's."""
    folder = oracle.save("deepseek-v3", tmp_path)
    want = tensors(folder)
    rewrite(folder, {"model.layers.3.eh_proj.weight": torch.zeros(64, 128)})
    got = tensors(folder)
    assert all(torch.equal(tensor, got[name]) for name, tensor in want.items())
    rewrite(folder, {"model.layers.4.eh_proj.weight": torch.zeros(64, 128)})
    with pytest.raises(InvalidRequestError, match=r"layers\.4\.eh_proj"):
        load_runner(folder)


def test_the_correction_bias_and_the_router_keep_float32(tmp_path: Path) -> None:
    """In a half-precision model too: experts are ranked by differences of these numbers."""
    folder = oracle.save("deepseek-v3", tmp_path)
    shape = parser.parse(read_config(folder))
    options = TensorOptions(torch.device("cpu"), torch.bfloat16)
    model = registry.model_class(shape.architecture)(shape, options, 64)
    weights.load(model, folder)
    held = load_file(folder / "model.safetensors")
    for name, tensor in model.parameters():
        wide = ".mlp.gate." in name
        assert tensor.dtype == (torch.float32 if wide else torch.bfloat16), name
        if wide:
            assert torch.equal(tensor, held[name])
