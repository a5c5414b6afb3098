"""The angle tables against transformers' rotary module, for every kind that is supported."""

from typing import Any

import pytest
import torch
from transformers import AutoConfig
from transformers.models.gemma3.modeling_gemma3 import Gemma3RotaryEmbedding
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.models.phi3.modeling_phi3 import Phi3RotaryEmbedding

from yaie.layers.rotary import angle_table
from yaie.model_config.parser import parse

LENGTH = 512
BASE = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 64,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": LENGTH,
    "pad_token_id": 0,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}
THETA = {"rope_theta": 10_000.0}
KINDS: dict[str, dict[str, Any]] = {
    "default": {"rope_type": "default", "rope_theta": 500_000.0},
    "linear": {"rope_type": "linear", "factor": 3.0} | THETA,
    "dynamic": {"rope_type": "dynamic", "factor": 3.0} | THETA,
    "llama3": LLAMA3 | {"rope_theta": 500_000.0},
    "yarn": YARN | THETA,
    "yarn-mscale": YARN | THETA | {"mscale": 0.7, "mscale_all_dim": 0.5},
    "yarn-factor": YARN | THETA | {"attention_factor": 1.3, "beta_fast": 16.0},
    "yarn-not-truncated": YARN | THETA | {"truncate": False},
    "proportional": {"rope_type": "proportional", "partial_rotary_factor": 0.5} | THETA,
}


def longrope(pairs: int) -> dict[str, Any]:
    return THETA | {
        "rope_type": "longrope",
        "short_factor": [1.0 + 0.1 * i for i in range(pairs)],
        "long_factor": [2.0 + 0.5 * i for i in range(pairs)],
        "original_max_position_embeddings": 128,
    }


def assert_table(table: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> None:
    half = table.shape[1] // 2
    torch.testing.assert_close(table[:, :half], cos[0, :, :half], rtol=0, atol=1e-6)
    torch.testing.assert_close(table[:, half:], sin[0, :, :half], rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_tables_equal_transformers(kind: str) -> None:
    parameters = KINDS[kind]
    config = AutoConfig.for_model("llama", **BASE, rope_parameters=dict(parameters))
    cos, sin = LlamaRotaryEmbedding(config)(torch.zeros(1), torch.arange(LENGTH)[None])
    shape = parse(BASE | {"rope_parameters": parameters})
    assert_table(angle_table(shape.ropes[0], shape.head_dim, LENGTH), cos, sin)


@pytest.mark.parametrize("length", [128, 129, LENGTH])
@pytest.mark.parametrize("partial", [0.75, 1.0])
def test_longrope_takes_the_factors_of_its_longest_sequence(partial: float, length: int) -> None:
    raw = BASE | {
        "architectures": ["Phi3ForCausalLM"],
        "partial_rotary_factor": partial,
        "rope_scaling": longrope(int(16 * partial)),
        "original_max_position_embeddings": 128,
    }
    config = AutoConfig.for_model("phi3", **raw)
    cos, sin = Phi3RotaryEmbedding(config)(torch.zeros(1), torch.arange(length)[None])
    shape = parse(raw)
    assert (shape.max_positions, shape.position_limit) == (128, LENGTH)
    table = angle_table(shape.ropes[0], shape.head_dim, length)
    assert table.shape == (length, int(32 * partial))
    assert_table(table, cos, sin)


@pytest.mark.parametrize("spelling", ["old", "new", "defaults"])
def test_windowed_layers_of_gemma_have_a_base_of_their_own(spelling: str) -> None:
    linear = {"rope_type": "linear", "factor": 8.0}
    tables = {
        "full_attention": linear | {"rope_theta": 80_000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1_000.0},
    }
    spellings: dict[str, dict[str, Any]] = {
        "old": {"rope_scaling": linear, "rope_theta": 80_000.0, "rope_local_base_freq": 1_000.0},
        "new": {"rope_parameters": tables},
        "defaults": {},
    }
    raw = BASE | {
        "architectures": ["Gemma3ForCausalLM"],
        "head_dim": 32,
        "num_key_value_heads": 2,
        "sliding_window_pattern": 2,
        "sliding_window": 8,
    }
    shape = parse(raw | spellings[spelling])
    config = AutoConfig.for_model("gemma3_text", **(raw | spellings[spelling]))
    module, positions = Gemma3RotaryEmbedding(config), torch.arange(LENGTH)[None]
    assert shape.windows == (8, None)
    for rope, kind in zip(shape.ropes, ("sliding_attention", "full_attention"), strict=True):
        assert_table(angle_table(rope, 32, LENGTH), *module(torch.zeros(1), positions, kind))


def test_the_old_spelling_means_the_same() -> None:
    old = {key: value for key, value in LLAMA3.items() if key != "rope_type"}
    old_config = BASE | {"rope_theta": 500_000.0, "rope_scaling": old | {"type": "llama3"}}
    new_config = BASE | {"rope_parameters": KINDS["llama3"]}
    assert parse(old_config).ropes == parse(new_config).ropes
