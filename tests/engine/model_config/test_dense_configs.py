"""config.json to ModelConfig: defaults of each family, old and new spellings, clear refusals."""

import contextlib
from typing import Any

import pytest

from yaie.layers.rotary import angle_table
from yaie.model_config import parser
from yaie.model_config.families import FAMILIES
from yaie.model_config.fields import UnsupportedModelError
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
QWEN3 = LLAMA | {"architectures": ["Qwen3ForCausalLM"], "num_key_value_heads": 4}


def test_llama_defaults() -> None:
    shape = parser.parse(LLAMA)
    assert (shape.num_kv_heads, shape.head_dim, shape.ropes[0].kind) == (4, 16, "default")
    assert (shape.tie_word_embeddings, shape.qkv_bias, shape.qk_norm) == (False, False, False)
    assert shape.windows == (None, None)


def test_qwen3_has_head_norms_and_wide_heads() -> None:
    shape = parser.parse(QWEN3)
    assert (shape.head_dim, shape.qk_norm) == (128, True)


def test_qwen3_windows_start_at_max_window_layers() -> None:
    window = {"use_sliding_window": True, "sliding_window": 32, "max_window_layers": 1}
    assert parser.parse(QWEN3 | window).windows == (None, 32)
    assert parser.parse(QWEN3 | window | {"use_sliding_window": False}).windows == (None, None)


ORIGINAL = "original_max_position_embeddings"
OPTIONAL = (
    "rope_scaling",
    "rope_parameters",
    "layer_types",
    "sliding_window",
    "head_dim",
    "query_pre_attn_scalar",
    "dtype",
)
LONGROPE = {
    "rope_type": "longrope",
    "short_factor": [1.0] * 8,
    "long_factor": [2.0] * 8,
    "original_max_position_embeddings": 64,
}


YARN = {"rope_type": "yarn", "factor": 2.0}


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"hidden_size": None}, "hidden_size"),
        ({"num_key_value_heads": 3}, "num_key_value_heads"),
        ({"head_dim": 15}, "head_dim"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"is_causal": False}, "is_causal"),
        ({"use_bidirectional_attention": True}, "use_bidirectional_attention"),
        ({"rope_scaling": {"type": "mrope"}}, "rope_type"),
        ({"rope_scaling": {"type": "linear"}}, "factor"),
        ({"rope_scaling": {"type": "linear", "factor": 0}}, "factor"),
        ({"rope_scaling": {"type": "yarn", "factor": 2, "beta_fast": -1}}, "beta_fast"),
        ({"rope_scaling": {"type": "default", "low_freq_factor": 4.0}}, "low_freq_factor"),
        ({"rope_scaling": LONGROPE | {"short_factor": [0.0] * 8}}, "short_factor"),
        ({"rope_theta": 0.5}, "rope_theta"),
        ({"rope_scaling": {"type": "default", "mrope_section": [2, 3, 3]}}, "mrope_section"),
        ({"rope_scaling": {"type": "longrope"}}, "short_factor"),
        ({"rope_scaling": LONGROPE | {"long_factor": [1.0]}}, "long_factor"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
        ({"rope_parameters": {"full_attention": {}}}, "rope_parameters"),
        ({"rope_parameters": {"sliding_attention": {"rope_theta": 5.0}}}, "rope_parameters"),
        ({"architectures": ["BloomForCausalLM"]}, "BloomForCausalLM"),
    ],
)
def test_what_no_native_model_does_is_named(change: dict[str, Any], name: str) -> None:
    with pytest.raises(UnsupportedModelError, match=name):
        parser.parse(LLAMA | change)


@pytest.mark.parametrize(
    ("architecture", "change", "name"),
    [
        ("MistralForCausalLM", {"layer_types": ["full_attention"] * 2}, "layer_types"),
        ("Qwen2ForCausalLM", {"layer_types": ["full_attention"]}, "layer_types"),
        ("Qwen2ForCausalLM", {"layer_types": ["chunked_attention"] * 2}, "layer_types"),
        ("Qwen3ForCausalLM", {"layer_types": ["sliding_attention"] * 2}, "sliding_window"),
        ("Gemma2ForCausalLM", {"query_pre_attn_scalar": 0}, "query_pre_attn_scalar"),
        ("Gemma2ForCausalLM", {"hidden_activation": "relu"}, "hidden_activation"),
        ("Gemma3ForCausalLM", {"rope_parameters": {"rope_type": "default"}}, "rope_parameters"),
        ("Gemma3ForCausalLM", {"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ("Gemma3ForCausalLM", {"rope_scaling": YARN | {"truncate": False}}, "truncate"),
    ],
)
def test_what_a_family_does_not_do_is_named(
    architecture: str, change: dict[str, Any], name: str
) -> None:
    with pytest.raises(UnsupportedModelError, match=name):
        parser.parse(LLAMA | {"architectures": [architecture]} | change)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"num_hidden_layers": -1}, "num_hidden_layers"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps"),
        ({"rms_norm_eps": "x"}, "rms_norm_eps"),
        ({"rope_theta": float("inf")}, "rope_theta"),
        ({"rope_theta": 10**400}, "rope_theta"),
        ({"vocab_size": "512"}, "vocab_size"),
        ({"vocab_size": True}, "vocab_size"),
        ({"intermediate_size": 10**12}, "intermediate_size"),
        ({"rope_scaling": "linear"}, "rope_parameters"),
        ({"rope_scaling": LONGROPE | {"long_factor": ["x"] * 8}}, "long_factor"),
        ({"attention_bias": "yes"}, "attention_bias"),
        ({"torch_dtype": {"a": 1}}, "dtype"),
        ({"architectures": []}, "architectures"),
        ({"architectures": ["A", "B"]}, "architectures"),
    ],
)
def test_what_means_nothing_to_any_model_is_named(change: dict[str, Any], name: str) -> None:
    with pytest.raises(InvalidRequestError, match=name) as caught:
        parser.parse(LLAMA | change)
    assert not isinstance(caught.value, UnsupportedModelError)


def test_gemma_of_text_and_images_is_tied_as_its_outer_settings_say() -> None:
    text = LLAMA | {"head_dim": 32, "num_key_value_heads": 2, "tie_word_embeddings": False}
    raw = {"architectures": ["Gemma3ForConditionalGeneration"], "text_config": text}
    assert parser.parse(raw).tie_word_embeddings
    assert not parser.parse(raw | {"tie_word_embeddings": False}).tie_word_embeddings


def test_longrope_is_limited_to_what_its_short_factors_hold() -> None:
    shape = parser.parse(LLAMA | {"rope_scaling": LONGROPE})
    assert (shape.max_positions, shape.position_limit) == (64, 256)


@pytest.mark.parametrize(
    "architecture", [name for name in sorted(FAMILIES) if name.endswith("ForCausalLM")]
)
def test_whatever_a_field_holds_it_is_read_or_refused(architecture: str) -> None:
    """Every field with every kind of wrong value; angles are computed for what was read."""
    base = LLAMA | {"architectures": [architecture]}
    for name in (*LLAMA, *OPTIONAL):
        for value in (None, -1, 0, 1, 10**30, 0.5, float("nan"), "x", [], {}, [0], {"a": 0}, True):
            with contextlib.suppress(InvalidRequestError):
                shape = parser.parse(base | {name: value})
                assert len(shape.ropes) == len(shape.windows) == shape.num_layers
    for kind in ("linear", "dynamic", "yarn", "longrope", "llama3", "proportional"):
        for name in (
            "factor",
            "beta_slow",
            "attention_factor",
            "mscale",
            "long_factor",
            "original",
        ):
            for value in (None, -1, 0, 1, 1e30, "x", [1.0] * 8):
                table = LONGROPE | {"rope_type": kind, "factor": 2.0, name: value}
                with contextlib.suppress(InvalidRequestError):
                    rope = parser.parse(base | {"rope_scaling": table}).ropes[0]
                    assert angle_table(rope, 16, 4).isfinite().all()
