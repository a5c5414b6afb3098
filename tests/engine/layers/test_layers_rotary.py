"""The angle tables against transformers' rotary module, for every kind that is supported."""

from typing import Any

import pytest
import torch
from transformers import AutoConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from yaie.layers.rotary import angle_table
from yaie.models.config import parse

BASE = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 64,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "max_position_embeddings": 512,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}
KINDS: dict[str, dict[str, Any]] = {
    "default": {"rope_type": "default", "rope_theta": 500_000.0},
    "linear": {"rope_type": "linear", "factor": 3.0, "rope_theta": 10_000.0},
    "llama3": LLAMA3 | {"rope_theta": 500_000.0},
    "yarn": YARN | {"rope_theta": 10_000.0},
    "yarn-mscale": YARN | {"rope_theta": 10_000.0, "mscale": 0.7, "mscale_all_dim": 0.5},
    "yarn-factor": YARN | {"rope_theta": 10_000.0, "attention_factor": 1.3, "beta_fast": 16.0},
    "yarn-not-truncated": YARN | {"rope_theta": 10_000.0, "truncate": False},
}


@pytest.mark.parametrize("kind", KINDS)
def test_tables_equal_transformers(kind: str) -> None:
    parameters = KINDS[kind]
    config = AutoConfig.for_model("llama", **BASE, rope_parameters=dict(parameters))
    positions = torch.arange(512)[None]
    cos, sin = LlamaRotaryEmbedding(config)(torch.zeros(1), positions)
    shape = parse(BASE | {"rope_parameters": parameters})
    table = angle_table(shape.ropes[0], shape.head_dim, 512)
    half = shape.head_dim // 2
    torch.testing.assert_close(table[:, :half], cos[0, :, :half], rtol=0, atol=1e-6)
    torch.testing.assert_close(table[:, half:], sin[0, :, :half], rtol=0, atol=1e-6)


def test_the_old_spelling_means_the_same() -> None:
    old = {key: value for key, value in LLAMA3.items() if key != "rope_type"}
    old_config = BASE | {"rope_theta": 500_000.0, "rope_scaling": old | {"type": "llama3"}}
    new_config = BASE | {"rope_parameters": KINDS["llama3"]}
    assert parse(old_config).ropes == parse(new_config).ropes
