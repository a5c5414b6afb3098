"""The arithmetic of a model's memory, beside the tensors that models really allocate."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from engine.model_config.test_sparse_configs import DEEPSEEK_V2_LITE
from engine.models import variants, variants_sparse
from yaie.checkpoint import sizes, weights
from yaie.checkpoint.source import BUILTIN
from yaie.layers.options import TensorOptions
from yaie.model_config import parser
from yaie.model_config.decoder_config import ModelConfig, with_mla_form
from yaie.models import registry
from yaie.runtime.startup import footprint
from yaie.runtime.tensors.kv_tensors import kv_spec

LLAMA_8B: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
}
EVERY: dict[str, dict[str, Any]] = variants.DENSE | variants_sparse.SPARSE


def config_of(variant: str) -> ModelConfig:
    """The variant's config.json as transformers writes it, parsed."""
    told = AutoConfig.for_model(**variants.BASE | EVERY[variant])
    family = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[told.model_type]
    return parser.parse(told.to_dict() | {"architectures": [family]})


def allocated(config: ModelConfig, dtype: torch.dtype) -> tuple[int, int, int]:
    """Parameters, their bytes, and cached bytes per token of a model without memory behind it."""
    options = TensorOptions(torch.device("meta"), dtype)
    model = registry.model_class(config.architecture)(config, options, 64)
    return *weights.count(model), kv_spec(model.caches, 16, dtype).bytes_per_page // 16


def told(config: ModelConfig, item_bytes: int) -> tuple[int, int, int]:
    found = footprint.of(config)
    return found.parameters, found.weight_bytes(item_bytes), found.kv_bytes_per_token(item_bytes)


@pytest.mark.parametrize("name", EVERY)
def test_it_is_what_a_model_of_every_family_allocates(name: str) -> None:
    config = config_of(name)
    assert told(config, 2) == allocated(config, torch.bfloat16)
    assert told(config, 4) == allocated(config, torch.float32)


@pytest.mark.parametrize("head", ["ForSequenceClassification", "Model"])
def test_other_heads_count_as_they_are(head: str) -> None:
    raw = LLAMA_8B | {"architectures": [f"Llama{head}"], "num_hidden_layers": 1}
    config = parser.parse(raw | {"id2label": {"0": "a", "1": "b", "2": "c"}})
    assert told(config, 2) == allocated(config, torch.bfloat16)


@pytest.mark.parametrize("form", ["naive", "absorbed", "latent"])
def test_every_form_of_latent_attention_keeps_what_it_caches(form: Any) -> None:
    config = with_mla_form(parser.parse(DEEPSEEK_V2_LITE), form)
    assert told(config, 2)[2] == allocated(config, torch.bfloat16)[2]


def test_a_published_model_has_its_published_size() -> None:
    """Llama 3.1 8B: 8,030,261,248 parameters; 128 KiB of cache a token in bfloat16."""
    found = footprint.of(parser.parse(LLAMA_8B))
    assert (found.parameters, found.kv_bytes_per_token(2)) == (8_030_261_248, 131_072)


def test_the_built_in_model_is_as_large_as_its_file() -> None:
    folder = BUILTIN / "yaie-demo"
    config = parser.parse(json.loads((folder / "config.json").read_text()))
    in_file = sizes.elements([folder / "model.safetensors"], tied=config.tie_word_embeddings)
    assert footprint.of(config).parameters == in_file


def test_activations_grow_with_the_step_and_with_the_rows_of_logits() -> None:
    config = parser.parse(LLAMA_8B)
    small = footprint.activation_bytes(config, 2, tokens=2048, rows=1)
    assert small < footprint.activation_bytes(config, 2, tokens=8192, rows=1) < 2**30
    assert footprint.activation_bytes(config, 2, tokens=2048, rows=1024) > 1024 * 128256 * 6


def test_it_needs_no_torch() -> None:
    text = Path(footprint.__file__).read_text()
    assert "import torch" not in text
