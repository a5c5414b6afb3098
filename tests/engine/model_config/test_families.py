"""Published configs of each family, read as transformers reads them."""

from typing import Any

import pytest
from transformers import AutoConfig

from yaie.model_config import parser
from yaie.model_config.decoder_config import ModelConfig
from yaie.model_config.families import FAMILIES
from yaie.models import registry
from yaie.models.llama import Llama

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "max_position_embeddings": 4096,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 32,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_scaling": None,
    "tie_word_embeddings": False,
    "torch_dtype": "float16",
    "vocab_size": 32000,
}
MISTRAL = LLAMA | {
    "architectures": ["MistralForCausalLM"],
    "model_type": "mistral",
    "intermediate_size": 14336,
    "max_position_embeddings": 32768,
    "num_key_value_heads": 8,
    "rope_theta": 10000.0,
    "sliding_window": 4096,
}
QWEN25: dict[str, Any] = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_act": "silu",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "max_position_embeddings": 32768,
    "max_window_layers": 28,
    "num_attention_heads": 28,
    "num_hidden_layers": 28,
    "num_key_value_heads": 4,
    "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0,
    "sliding_window": 131072,
    "tie_word_embeddings": False,
    "use_sliding_window": False,
    "vocab_size": 152064,
}
GEMMA: dict[str, Any] = {
    "architectures": ["GemmaForCausalLM"],
    "model_type": "gemma",
    "attention_bias": False,
    "head_dim": 128,
    "hidden_act": "gelu",
    "hidden_size": 4608,
    "intermediate_size": 36864,
    "max_position_embeddings": 8192,
    "num_attention_heads": 32,
    "num_hidden_layers": 46,
    "num_key_value_heads": 16,
    "rms_norm_eps": 1e-06,
    "rope_theta": 10000.0,
    "torch_dtype": "float32",
    "vocab_size": 256000,
}
GEMMA2 = GEMMA | {
    "architectures": ["Gemma2ForCausalLM"],
    "model_type": "gemma2",
    "attn_logit_softcapping": 50.0,
    "final_logit_softcapping": 30.0,
    "hidden_act": "gelu_pytorch_tanh",
    "hidden_activation": "gelu_pytorch_tanh",
    "query_pre_attn_scalar": 144,
    "sliding_window": 4096,
}
GEMMA3: dict[str, Any] = {
    "architectures": ["Gemma3ForCausalLM"],
    "model_type": "gemma3_text",
    "attn_logit_softcapping": None,
    "final_logit_softcapping": None,
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size": 1152,
    "intermediate_size": 6912,
    "max_position_embeddings": 32768,
    "num_attention_heads": 4,
    "num_hidden_layers": 26,
    "num_key_value_heads": 1,
    "query_pre_attn_scalar": 256,
    "rms_norm_eps": 1e-06,
    "rope_local_base_freq": 10000,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "sliding_window": 512,
    "sliding_window_pattern": 6,
    "vocab_size": 262144,
}
PHI3: dict[str, Any] = {
    "architectures": ["Phi3ForCausalLM"],
    "model_type": "phi3",
    "hidden_act": "silu",
    "hidden_size": 3072,
    "intermediate_size": 8192,
    "max_position_embeddings": 4096,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 32,
    "original_max_position_embeddings": 4096,
    "rms_norm_eps": 1e-05,
    "rope_scaling": None,
    "rope_theta": 10000.0,
    "sliding_window": 2047,
    "tie_word_embeddings": False,
    "vocab_size": 32064,
}
PUBLISHED: dict[str, dict[str, Any]] = {
    "llama-2": LLAMA,
    "llama-3.2": LLAMA
    | {
        "head_dim": 64,
        "hidden_size": 2048,
        "max_position_embeddings": 131072,
        "num_key_value_heads": 8,
        "num_hidden_layers": 16,
        "rope_theta": 500000.0,
        "tie_word_embeddings": True,
        "vocab_size": 128256,
        "rope_scaling": {
            "factor": 32.0,
            "high_freq_factor": 4.0,
            "low_freq_factor": 1.0,
            "original_max_position_embeddings": 8192,
            "rope_type": "llama3",
        },
    },
    "mistral-v0.1": MISTRAL,
    "mistral-v0.3": MISTRAL
    | {"rope_theta": 1000000.0, "sliding_window": None, "vocab_size": 32768},
    "mistral-nemo": MISTRAL | {"head_dim": 128, "hidden_size": 5120, "sliding_window": None},
    "qwen2.5": QWEN25,
    "qwen2.5-yarn": QWEN25
    | {
        "rope_scaling": {
            "factor": 4.0,
            "original_max_position_embeddings": 32768,
            "type": "yarn",
        }
    },
    "qwen2.5-windows": QWEN25 | {"use_sliding_window": True, "max_window_layers": 21},
    "qwen3": QWEN25
    | {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "attention_bias": False,
        "head_dim": 128,
        "hidden_size": 1024,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "sliding_window": None,
        "tie_word_embeddings": True,
    },
    "gemma-1": GEMMA,
    "gemma-2-27b": GEMMA2,
    "gemma-3-1b": GEMMA3,
    "phi-3-4k": PHI3,
    "phi-4-mini": PHI3
    | {
        "hidden_size": 3072,
        "max_position_embeddings": 131072,
        "num_attention_heads": 24,
        "num_key_value_heads": 8,
        "partial_rotary_factor": 0.75,
        "rope_scaling": {
            "long_factor": [1.0 + i for i in range(48)],
            "short_factor": [1.0] * 48,
            "type": "longrope",
        },
        "sliding_window": 262144,
        "tie_word_embeddings": True,
        "vocab_size": 200064,
    },
}
SAME = {
    "hidden_size": "hidden_size",
    "intermediate_size": "intermediate_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "num_kv_heads": "num_key_value_heads",
    "vocab_size": "vocab_size",
    "position_limit": "max_position_embeddings",
    "rms_norm_eps": "rms_norm_eps",
    "tie_word_embeddings": "tie_word_embeddings",
}


def assert_same(shape: ModelConfig, theirs: Any) -> None:
    for ours, name in SAME.items():
        assert getattr(shape, ours) == getattr(theirs, name), name
    head_dim = getattr(theirs, "head_dim", None) or theirs.hidden_size // theirs.num_attention_heads
    assert shape.head_dim == head_dim
    scalar = getattr(theirs, "query_pre_attn_scalar", head_dim)
    assert shape.attention_scale == pytest.approx(scalar**-0.5)
    assert shape.logit_softcap == getattr(theirs, "final_logit_softcapping", None)


def windows(theirs: Any) -> tuple[int | None, ...]:
    window = getattr(theirs, "sliding_window", None)
    kinds = getattr(theirs, "layer_types", None) or ["sliding_attention"] * theirs.num_hidden_layers
    return tuple(window if kind == "sliding_attention" else None for kind in kinds)


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_config_is_read_as_transformers_reads_it(name: str) -> None:
    shape = parser.parse(PUBLISHED[name])
    theirs = AutoConfig.for_model(**PUBLISHED[name])
    assert_same(shape, theirs)
    assert shape.windows == windows(theirs)
    tables = theirs.rope_parameters
    for rope, window in zip(shape.ropes, shape.windows, strict=True):
        kind = "full_attention" if window is None else "sliding_attention"
        table = tables.get(kind, tables)
        assert rope.theta == table["rope_theta"]
        assert rope.kind == table["rope_type"]
        if "factor" in table:
            assert rope.factor == table["factor"]
        if rope.original_max_positions:
            assert rope.original_max_positions == table["original_max_position_embeddings"]


def test_gemma_3_with_images_takes_the_defaults_that_its_text_config_leaves_out() -> None:
    raw = {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "model_type": "gemma3",
        "text_config": {
            "hidden_size": 2560,
            "intermediate_size": 10240,
            "model_type": "gemma3_text",
            "num_hidden_layers": 34,
            "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
            "sliding_window": 1024,
        },
        "torch_dtype": "bfloat16",
        "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 1152},
    }
    shape = parser.parse(raw)
    theirs = AutoConfig.for_model(**raw).text_config
    assert_same(shape, theirs)
    assert shape.windows == windows(theirs)
    assert shape.dtype == "bfloat16"
    assert {rope.factor for rope in shape.ropes} == {1.0, 8.0}


def test_every_architecture_of_the_table_has_its_class() -> None:
    assert all(issubclass(registry.model_class(name), Llama) for name in FAMILIES)


@pytest.mark.parametrize(
    ("top", "head", "labels"),
    [
        ("ForCausalLM", "lm", 0),
        ("ForSequenceClassification", "score", 2),
        ("Model", "none", 0),
    ],
)
def test_the_architecture_says_what_stands_on_top(top: str, head: str, labels: int) -> None:
    shape = parser.parse(LLAMA | {"architectures": [f"Llama{top}"]})
    assert (shape.head, shape.num_labels) == (head, labels)


def test_a_classifier_has_as_many_classes_as_names() -> None:
    raw = LLAMA | {"architectures": ["LlamaForSequenceClassification"]}
    names = {"0": "a", "1": "b", "2": "c"}
    assert parser.parse(raw | {"id2label": names}).num_labels == 3
    assert parser.parse(raw | {"num_labels": 1}).num_labels == 1
