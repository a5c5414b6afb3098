"""config.json read by us and by transformers' own configuration classes: where a hub's file leaves
something out, spells it in the old way or says null, both mean the same.

The oracle's models are saved by transformers, which writes every setting out; files of the hub do
not.
"""

from dataclasses import fields
from typing import Any

import pytest
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from yaie.model_config import parser
from yaie.model_config.decoder_config import ModelConfig

SIZES: dict[str, Any] = {
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 112,
    "num_hidden_layers": 7,
    "num_attention_heads": 32,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
}
KINDS = {
    "llama": "Llama",
    "mistral": "Mistral",
    "qwen2": "Qwen2",
    "qwen3": "Qwen3",
    "gemma": "Gemma",
    "gemma2": "Gemma2",
    "gemma3_text": "Gemma3",
    "phi3": "Phi3",
    "mixtral": "Mixtral",
    "qwen2_moe": "Qwen2Moe",
    "qwen3_moe": "Qwen3Moe",
    "deepseek_v2": "DeepseekV2",
    "deepseek_v3": "DeepseekV3",
}
NEEDED: dict[str, dict[str, Any]] = {"deepseek_v2": {"num_experts_per_tok": 6}}
"""What transformers' class has no usable default for."""
SAID: dict[str, dict[str, Any]] = {
    "nothing": {},
    "heads": {"num_key_value_heads": 2, "head_dim": 24},
    "heads null": {"num_key_value_heads": None},
    "window": {"sliding_window": 40},
    "window null": {"sliding_window": None},
    "window used": {"use_sliding_window": True, "sliding_window": 40},
    "window used from a layer": {
        "use_sliding_window": True,
        "sliding_window": 40,
        "max_window_layers": 3,
    },
    "window unused": {"use_sliding_window": False, "sliding_window": 40},
    "base": {"rope_theta": 777.0},
    "base in the table": {"rope_theta": 777.0, "rope_scaling": {"type": "default"}},
    "tied": {"tie_word_embeddings": True},
    "untied": {"tie_word_embeddings": False, "rms_norm_eps": 1e-3},
    "pattern": {"sliding_window_pattern": 3, "query_pre_attn_scalar": 40},
    "no caps": {"final_logit_softcapping": None, "attn_logit_softcapping": None},
    "experts": {"norm_topk_prob": True, "num_experts_per_tok": 3, "routed_scaling_factor": 1.5},
    "dense layers": {"mlp_only_layers": [1], "decoder_sparse_step": 2, "first_k_dense_replace": 2},
}
APART = {
    *((kind, "heads null") for kind in KINDS if kind not in {"llama", "qwen2", "qwen3", "phi3"}),
    *((kind, "heads") for kind in KINDS if kind.startswith("deepseek")),
    *((kind, "window null") for kind in ("gemma2", "gemma3_text")),
    ("deepseek_v2", "experts"),
}
"""What one of the two refuses: null heads, windowed layers without a window, DeepSeek-V2 whose
shares are normalized; and DeepSeek with fewer key heads than heads, which mean nothing to it.
"""


def theirs(cfg: Any) -> dict[str, Any]:
    """The facts of a configuration of transformers, in our words."""
    known = _known(cfg)
    window = known.get("sliding_window")
    layers = range(cfg.num_hidden_layers)
    kinds = known.get("layer_types") or ["sliding_attention" for _ in layers]
    full = cfg.rope_parameters.get("full_attention", cfg.rope_parameters)
    local = cfg.rope_parameters.get("sliding_attention", full)
    size = getattr(cfg, "head_dim", None) or cfg.hidden_size // cfg.num_attention_heads
    if "qk_nope_head_dim" in known:
        size = cfg.qk_nope_head_dim + cfg.qk_rope_head_dim
    facts = {
        "kv_heads": cfg.num_key_value_heads if "qk_nope_head_dim" not in known else None,
        "eps": cfg.rms_norm_eps,
        "tied": cfg.tie_word_embeddings,
        "windows": tuple(window if kind == "sliding_attention" else None for kind in kinds),
        "theta": {full["rope_theta"], local["rope_theta"]},
        "softcap": known.get("final_logit_softcapping"),
        "scale": known.get("query_pre_attn_scalar", size) ** -0.5,
    }
    if "num_experts_per_tok" not in known:
        return facts
    first, dense = known.get("first_k_dense_replace", 0), known.get("mlp_only_layers", [])
    step = known.get("decoder_sparse_step", 1)
    return facts | {
        "top": cfg.num_experts_per_tok,
        "experts": _experts(cfg),
        "inner": known.get("moe_intermediate_size", cfg.intermediate_size),
        "sparse": tuple(i >= first and i not in dense and (i + 1) % step == 0 for i in layers),
        "scale of shares": known.get("routed_scaling_factor", 1.0),
    }


def _known(cfg: Any) -> dict[str, Any]:
    """The settings that its class declares; others of parser.json are kept beside them, and of
    these only head_dim has an effect.
    """
    return {field.name: getattr(cfg, field.name) for field in fields(cfg)}


def _experts(cfg: Any) -> int:
    names = ("n_routed_experts", "num_local_experts", "num_experts")
    return next(getattr(cfg, name) for name in names if hasattr(cfg, name))


def ours(shape: ModelConfig) -> dict[str, Any]:
    """The same facts of a shape of ours."""
    facts = {
        "kv_heads": shape.num_kv_heads if shape.mla is None else None,
        "eps": shape.rms_norm_eps,
        "tied": shape.tie_word_embeddings,
        "windows": shape.windows,
        "theta": {rope.theta for rope in shape.ropes},
        "softcap": shape.logit_softcap,
        "scale": shape.attention_scale,
    }
    if shape.moe is None:
        return facts
    return facts | {
        "top": shape.moe.experts_per_token,
        "experts": shape.moe.num_experts,
        "inner": shape.moe.intermediate_size,
        "sparse": shape.moe.sparse,
        "scale of shares": shape.moe.scale,
    }


CASES = [(kind, said) for kind in KINDS for said in SAID if (kind, said) not in APART]


@pytest.mark.parametrize(("kind", "said"), CASES)
def test_both_read_the_same(kind: str, said: str) -> None:
    raw = SIZES | NEEDED.get(kind, {}) | SAID[said]
    names = {"model_type": kind, "architectures": [f"{KINDS[kind]}ForCausalLM"]}
    shape = parser.parse(raw | names)
    assert ours(shape) == theirs(CONFIG_MAPPING[kind].from_dict(raw))
