"""Configs of mixtures and of latent attention: published ones, defaults, clear refusals."""

import math
from typing import Any

import pytest
import torch

from yaie.layers.mla_forms import FORMS, LatentCore
from yaie.layers.options import TensorOptions
from yaie.model_config import parser
from yaie.model_config.decoder_config import ModelConfig
from yaie.model_config.fields import UnsupportedModelError
from yaie.model_config.moe import MLAConfig, MoEConfig
from yaie.runtime.tensors.kv_tensors import kv_spec
from yaie_api.errors import InvalidRequestError

SIZES: dict[str, Any] = {
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 112,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "max_position_embeddings": 256,
}
MIXTRAL = SIZES | {"architectures": ["MixtralForCausalLM"], "num_local_experts": 8}
QWEN2 = SIZES | {"architectures": ["Qwen2MoeForCausalLM"]}
QWEN3 = SIZES | {"architectures": ["Qwen3MoeForCausalLM"], "num_experts": 16}
V2 = SIZES | {"architectures": ["DeepseekV2ForCausalLM"]}
V3 = SIZES | {"architectures": ["DeepseekV3ForCausalLM"]}
# what the published checkpoints say, without what is not read
DEEPSEEK_V2_LITE: dict[str, Any] = {
    "architectures": ["DeepseekV2ForCausalLM"],
    "attention_bias": False,
    "first_k_dense_replace": 1,
    "hidden_act": "silu",
    "hidden_size": 2048,
    "intermediate_size": 10944,
    "kv_lora_rank": 512,
    "max_position_embeddings": 163840,
    "moe_intermediate_size": 1408,
    "moe_layer_freq": 1,
    "n_group": 1,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "norm_topk_prob": False,
    "num_attention_heads": 16,
    "num_experts_per_tok": 6,
    "num_hidden_layers": 27,
    "num_key_value_heads": 16,
    "q_lora_rank": None,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "rms_norm_eps": 1e-06,
    "rope_scaling": {
        "beta_fast": 32,
        "beta_slow": 1,
        "factor": 40,
        "mscale": 0.707,
        "mscale_all_dim": 0.707,
        "original_max_position_embeddings": 4096,
        "type": "yarn",
    },
    "rope_theta": 10000,
    "routed_scaling_factor": 1.0,
    "scoring_func": "softmax",
    "topk_group": 1,
    "topk_method": "greedy",
    "torch_dtype": "bfloat16",
    "v_head_dim": 128,
    "vocab_size": 102400,
}
DEEPSEEK_V3: dict[str, Any] = DEEPSEEK_V2_LITE | {
    "architectures": ["DeepseekV3ForCausalLM"],
    "first_k_dense_replace": 3,
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "n_group": 8,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "norm_topk_prob": True,
    "num_attention_heads": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 61,
    "num_key_value_heads": 128,
    "num_nextn_predict_layers": 1,
    "q_lora_rank": 1536,
    "rope_scaling": DEEPSEEK_V2_LITE["rope_scaling"] | {"mscale": 1.0, "mscale_all_dim": 1.0},
    "routed_scaling_factor": 2.5,
    "scoring_func": "sigmoid",
    "topk_group": 4,
    "topk_method": "noaux_tc",
    "vocab_size": 129280,
}


def experts(raw: dict[str, Any]) -> MoEConfig:
    found = parser.parse(raw).moe
    assert found is not None
    return found


def latent(raw: dict[str, Any]) -> MLAConfig:
    found = parser.parse(raw).mla
    assert found is not None
    return found


def test_mixtral_has_experts_in_every_layer() -> None:
    moe = experts(MIXTRAL)
    assert (moe.num_experts, moe.experts_per_token, moe.intermediate_size) == (8, 2, 112)
    assert (moe.sparse, moe.normalize, moe.scoring) == ((True,) * 4, True, "softmax")
    assert parser.parse(MIXTRAL).ropes[0].theta == 1e6
    assert parser.parse(MIXTRAL | {"sliding_window": 32}).windows == (32,) * 4


def test_qwen_says_which_layers_are_dense() -> None:
    assert experts(QWEN3 | {"mlp_only_layers": [0, 2]}).sparse == (False, True, False, True)
    assert experts(QWEN3 | {"decoder_sparse_step": 3}).sparse == (False, False, True, False)
    assert experts(QWEN3).normalize is False
    assert experts(QWEN3 | {"norm_topk_prob": True}).normalize is True


def test_windows_of_qwen2_mixtures_end_where_those_of_qwen2_begin() -> None:
    """Every second layer below `max_window_layers`, which is 28 where it is absent."""
    window = {"use_sliding_window": True, "sliding_window": 32}
    assert parser.parse(QWEN2 | window).windows == (32, None, 32, None)
    assert parser.parse(QWEN2 | window | {"max_window_layers": 2}).windows == (32,) + (None,) * 3
    named = ["full_attention"] * 3 + ["sliding_attention"]
    assert parser.parse(QWEN2 | window | {"layer_types": named}).windows == (None,) * 3 + (32,)
    assert parser.parse(QWEN2 | window | {"use_sliding_window": False}).windows == (None,) * 4


def test_qwen3_counts_experts_under_two_names() -> None:
    renamed = {name: value for name, value in QWEN3.items() if name != "num_experts"}
    assert experts(renamed | {"num_local_experts": 12}).num_experts == 12


def test_qwen2_has_a_gated_mlp_beside_its_experts() -> None:
    moe = experts(QWEN2 | {"shared_expert_intermediate_size": 72})
    assert (moe.shared_size, moe.shared_gate, moe.num_experts) == (72, True, 60)
    assert parser.parse(QWEN2).qkv_bias


def test_the_lite_deepseek_v2_is_read_as_published() -> None:
    moe, mla = experts(DEEPSEEK_V2_LITE), latent(DEEPSEEK_V2_LITE)
    assert (moe.num_experts, moe.experts_per_token, moe.shared_size) == (64, 6, 2816)
    assert (moe.groups, moe.kept_groups, moe.correction_bias) == (1, 1, False)
    assert moe.sparse == (False, *(True,) * 26)
    assert (mla.q_lora_rank, mla.qk_head_dim, mla.latent_size) == (None, 192, 576)


def test_deepseek_v3_is_read_as_published() -> None:
    moe, mla = experts(DEEPSEEK_V3), latent(DEEPSEEK_V3)
    assert (moe.num_experts, moe.experts_per_token, moe.shared_size) == (256, 8, 2048)
    assert (moe.groups, moe.kept_groups, moe.group_best) == (8, 4, 2)
    assert (moe.scoring, moe.correction_bias, moe.scale) == ("sigmoid", True, 2.5)
    assert moe.sparse == (*(False,) * 3, *(True,) * 58)
    assert (mla.q_lora_rank, mla.interleaved, mla.form) == (1536, True, "absorbed")
    assert parser.parse(DEEPSEEK_V3).extra_layers == 1


@pytest.mark.parametrize(("raw", "weight"), [(DEEPSEEK_V2_LITE, 0.707), (DEEPSEEK_V3, 1.0)])
def test_a_stretched_rotation_scales_attention(raw: dict[str, Any], weight: float) -> None:
    """Queries and keys each grow by 0.1 mscale_all_dim ln(factor) + 1."""
    growth = 0.1 * weight * math.log(40) + 1
    assert parser.parse(raw).attention_scale == pytest.approx(192**-0.5 * growth**2)
    plain = raw | {"rope_scaling": None}
    assert parser.parse(plain).attention_scale == pytest.approx(192**-0.5)
    unweighted = raw | {"rope_scaling": raw["rope_scaling"] | {"mscale_all_dim": 0}}
    assert parser.parse(unweighted).attention_scale == pytest.approx(192**-0.5)


def test_layers_are_dense_until_the_first_and_between_steps() -> None:
    raw = V3 | {"num_hidden_layers": 8, "first_k_dense_replace": 3, "moe_layer_freq": 2}
    assert [i for i, sparse in enumerate(experts(raw).sparse) if sparse] == [4, 6]
    assert not any(experts(raw | {"first_k_dense_replace": 8}).sparse)


def test_an_absent_rank_of_queries_is_the_default_and_null_is_none() -> None:
    assert latent(V3).q_lora_rank == 1536
    assert latent(V3 | {"q_lora_rank": None}).q_lora_rank is None


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        (MIXTRAL | {"num_experts_per_tok": 9}, "num_experts_per_tok"),
        (MIXTRAL | {"hidden_act": "gelu_pytorch_tanh"}, "hidden_act"),
        (QWEN3 | {"mlp_only_layers": 3}, "mlp_only_layers"),
        (V2 | {"topk_method": "noaux_tc"}, "topk_method"),
        (V2 | {"norm_topk_prob": True}, "norm_topk_prob"),
        (V2 | {"topk_method": "group_limited_greedy"}, "n_group"),
        (V3 | {"scoring_func": "softmax"}, "scoring_func"),
        (V3 | {"n_group": 7}, "n_group"),
        (V3 | {"n_group": None}, "n_group"),
        (V3 | {"topk_group": None}, "topk_group"),
        (V3 | {"topk_group": 9}, "topk_group"),
        (V3 | {"n_group": 256}, "n_group"),
        (V3 | {"n_group": 32, "topk_group": 1, "num_experts_per_tok": 9}, "num_experts_per_tok"),
        (V3 | {"attention_bias": True, "q_lora_rank": None}, "attention_bias"),
        (V3 | {"qk_rope_head_dim": 63}, "partial_rotary_factor"),
    ],
)
def test_what_no_native_model_does_is_refused_by_name(raw: dict[str, Any], name: str) -> None:
    with pytest.raises(UnsupportedModelError, match=name):
        parser.parse(raw)


@pytest.mark.parametrize(
    "change",
    [
        {"n_routed_experts": 0},
        {"first_k_dense_replace": -1},
        {"n_shared_experts": "two"},
        {"kv_lora_rank": 2.5},
        {"num_nextn_predict_layers": True},
    ],
)
def test_malformed_numbers_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError, match=next(iter(change))):
        parser.parse(V3 | change)


def kept(raw: dict[str, Any], form: str) -> tuple[str, int]:
    """(kind of cache, bytes of a token over all layers in bfloat16)."""
    shape: ModelConfig = parser.parse(raw)
    assert shape.mla is not None
    options = TensorOptions(torch.device("meta"), torch.bfloat16)
    cos_sin = torch.empty(0, device="meta")
    core = LatentCore(shape, shape.mla, cos_sin, options)
    cache = FORMS[form](core, 0).cache
    group = kv_spec((cache,) * shape.num_layers, 16, torch.bfloat16).groups[0]
    return group.kind, group.bytes_per_token


def test_a_latent_cache_is_a_fraction_of_a_naive_one() -> None:
    """DeepSeek-V3: 576 numbers a layer, not 128 heads of 192 + 128: 70 KB a token, not 5 MB."""
    assert kept(DEEPSEEK_V3, "naive") == ("full", 61 * 128 * (192 + 128) * 2)
    for form in ("latent", "absorbed"):
        assert kept(DEEPSEEK_V3, form) == ("latent", 61 * 576 * 2)
    assert kept(DEEPSEEK_V2_LITE, "naive")[1] == 276_480
    assert kept(DEEPSEEK_V2_LITE, "absorbed")[1] == 31_104
