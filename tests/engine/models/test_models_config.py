"""config.json to ModelConfig: defaults of each family, old and new spellings, clear refusals."""

from typing import Any

import pytest

from yaie.models import config, registry
from yaie_api.errors import InvalidRequestError

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 112,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
}
QWEN3 = LLAMA | {"architectures": ["Qwen3ForCausalLM"]}


def test_llama_defaults() -> None:
    shape = config.parse(LLAMA)
    assert (shape.num_kv_heads, shape.head_dim, shape.ropes[0].kind) == (4, 16, "default")
    assert (shape.tie_word_embeddings, shape.qkv_bias, shape.qk_norm) == (False, False, False)
    assert shape.windows == (None, None)


def test_qwen3_has_head_norms_and_wide_heads() -> None:
    shape = config.parse(QWEN3)
    assert (shape.head_dim, shape.qk_norm) == (128, True)


def test_qwen3_windows_start_at_max_window_layers() -> None:
    window = {"use_sliding_window": True, "sliding_window": 32, "max_window_layers": 1}
    assert config.parse(QWEN3 | window).windows == (None, 32)
    assert config.parse(QWEN3 | window | {"use_sliding_window": False}).windows == (None, None)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"hidden_size": None}, "hidden_size"),
        ({"num_hidden_layers": -1}, "num_hidden_layers"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps"),
        ({"rope_theta": float("inf")}, "rope_theta"),
        ({"rope_theta": 10**400}, "rope_theta"),
        ({"vocab_size": "512"}, "vocab_size"),
        ({"vocab_size": True}, "vocab_size"),
        ({"intermediate_size": 10**12}, "intermediate_size"),
        ({"num_key_value_heads": 3}, "num_key_value_heads"),
        ({"head_dim": 15}, "head_dim"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"rms_norm_eps": "x"}, "rms_norm_eps"),
        ({"rope_scaling": {"type": "mrope"}}, "rope_type"),
        ({"rope_scaling": {"type": "longrope"}}, "short_factor"),
        ({"rope_scaling": "linear"}, "rope_parameters"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
        ({"architectures": []}, "architectures"),
        ({"architectures": ["A", "B"]}, "architectures"),
    ],
)
def test_what_is_not_supported_is_named(change: dict[str, Any], name: str) -> None:
    with pytest.raises(InvalidRequestError, match=name):
        config.parse(LLAMA | change)


def test_an_unknown_architecture_is_refused_with_the_supported_ones() -> None:
    with pytest.raises(InvalidRequestError, match="LlamaForCausalLM"):
        registry.native({"architectures": ["BloomForCausalLM"]}, "yaie")
