"""Loading checkpoints: shards, tied heads, and checkpoints that do not fit the config."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.models.oracle import hf_model, save
from yaie.checkpoint import weights
from yaie.checkpoint.source import WEIGHTS_INDEX, read_config
from yaie.layers.options import TensorOptions
from yaie.model_config import parser
from yaie.models.llama import Llama
from yaie_api.errors import InvalidRequestError

VARIANT = "llama-head-dim-bias"


def empty_model(folder: Path, dtype: torch.dtype = torch.float32) -> Llama:
    shape = parser.parse(read_config(folder))
    return Llama(shape, TensorOptions(torch.device("cpu"), dtype), 64)


def rewrite(folder: Path, **changes: torch.Tensor | None) -> None:
    """Replace tensors of model.safetensors; None removes one. `__` in a name stands for a dot."""
    path = folder / "model.safetensors"
    tensors = {name: tensor.clone() for name, tensor in load_file(path).items()}
    for name, tensor in changes.items():
        tensors.pop(name.replace("__", "."), None)
        if tensor is not None:
            tensors[name.replace("__", ".")] = tensor
    save_file(tensors, path)


def test_every_tensor_arrives_where_it_belongs(tmp_path: Path) -> None:
    model = empty_model(save(VARIANT, tmp_path))
    weights.load(model, tmp_path)
    theirs = hf_model(VARIANT).state_dict()
    ours = dict(model.parameters())
    assert set(ours) == set(theirs)
    for name, tensor in ours.items():
        assert torch.equal(tensor, theirs[name]), name


def test_shards_load_like_one_file(tmp_path: Path) -> None:
    save(VARIANT, tmp_path, max_shard_size="200KB")
    assert (tmp_path / WEIGHTS_INDEX).exists()
    model = empty_model(tmp_path)
    weights.load(model, tmp_path)
    for name, tensor in model.parameters():
        assert torch.equal(tensor, hf_model(VARIANT).state_dict()[name]), name


def test_weights_are_cast_to_the_models_dtype(tmp_path: Path) -> None:
    model = empty_model(save(VARIANT, tmp_path), torch.bfloat16)
    weights.load(model, tmp_path)
    assert model.norm.weight.dtype == torch.bfloat16
    assert torch.equal(model.norm.weight, hf_model(VARIANT).model.norm.weight.bfloat16())


def test_a_tied_model_may_repeat_its_head_and_counts_it_once(tmp_path: Path) -> None:
    model = empty_model(save("llama-tied-llama3-rope", tmp_path))
    rewrite(tmp_path, lm_head__weight=hf_model("llama-tied-llama3-rope").lm_head.weight.detach())
    weights.load(model, tmp_path)
    assert torch.equal(model.head.weight, model.embedding.weight)
    parameters, weight_bytes = weights.count(model)
    assert parameters == sum(p.numel() for p in hf_model("llama-tied-llama3-rope").parameters())
    assert weight_bytes == 4 * parameters


def test_a_tied_model_with_another_head_is_refused(tmp_path: Path) -> None:
    """Transformers would use that head, whatever the config says."""
    model = empty_model(save("llama-tied-llama3-rope", tmp_path))
    rewrite(tmp_path, lm_head__weight=torch.zeros(512, 64))
    with pytest.raises(InvalidRequestError, match="Set tie_word_embeddings to false"):
        weights.load(model, tmp_path)


def shards(folder: Path) -> list[Path]:
    save(VARIANT, folder, max_shard_size="200KB")
    return sorted(folder.glob("*.safetensors"))


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    gone = shards(tmp_path)[1]
    gone.unlink()
    with pytest.raises(InvalidRequestError, match=rf"lacks {gone.name}\. Download"):
        weights.load(empty_model(tmp_path), tmp_path)


def test_a_tensor_in_two_shards_is_refused(tmp_path: Path) -> None:
    first, second, *_ = shards(tmp_path)
    twice = dict([next(iter(load_file(first).items()))])
    save_file(load_file(second) | twice, second)
    with pytest.raises(InvalidRequestError, match=f"in two files, {first.name} and {second.name}"):
        weights.load(empty_model(tmp_path), tmp_path)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"model__norm__weight": None}, "lacks 1 tensors: model.norm.weight"),
        ({"model__extra__weight": torch.zeros(2)}, "no place for: model.extra.weight"),
        ({"model__norm__weight": torch.zeros(63)}, r"has shape \[63\]"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_refused(
    tmp_path: Path, changes: dict[str, torch.Tensor | None], says: str
) -> None:
    model = empty_model(save(VARIANT, tmp_path))
    rewrite(tmp_path, **changes)
    with pytest.raises(InvalidRequestError, match=says):
        weights.load(model, tmp_path)


@pytest.mark.parametrize("name", ["../m.safetensors", "/etc/m.safetensors", "model.bin"])
def test_an_index_cannot_name_files_elsewhere(tmp_path: Path, name: str) -> None:
    model = empty_model(save(VARIANT, tmp_path))
    (tmp_path / WEIGHTS_INDEX).write_text(json.dumps({"weight_map": {"a": name}}))
    with pytest.raises(InvalidRequestError, match="outside the folder"):
        weights.load(model, tmp_path)


def test_dummy_weights_depend_on_the_seed_only(tmp_path: Path) -> None:
    save(VARIANT, tmp_path)
    models = [empty_model(tmp_path) for _ in range(3)]
    for model, seed in zip(models, (1, 1, 2), strict=True):
        weights.fill_dummy(model, seed)
    first, same, other = ([t for _, t in model.parameters()] for model in models)
    assert all(torch.equal(a, b) for a, b in zip(first, same, strict=True))
    assert not torch.equal(first[0], other[0])
    assert torch.equal(models[0].norm.weight, torch.ones(64))
