"""Tiny models of every native family: one variant for each option that changes the arithmetic.

Windows are shorter than the prompts, soft caps are low enough to bend scores, and no two sizes are
equal by accident (head_dim is not hidden / heads, vocabularies are odd).
"""

from typing import Any

BASE: dict[str, Any] = {
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 112,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.3,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10_000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 64,
}
LINEAR = {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 2.0}
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 10_000.0, "factor": 4.0}
PROPORTIONAL = {
    "rope_type": "proportional",
    "rope_theta": 10_000.0,
    "partial_rotary_factor": 0.5,
    "factor": 2.0,
}


def longrope(pairs: int, original: int, **more: Any) -> dict[str, Any]:
    """Factors that differ between pairs of dimensions and between short and long sequences."""
    return {
        "rope_type": "longrope",
        "rope_theta": 10_000.0,
        "original_max_position_embeddings": original,
        "short_factor": [1.0 + 0.1 * i for i in range(pairs)],
        "long_factor": [2.0 + 0.5 * i for i in range(pairs)],
        **more,
    }


LLAMA: dict[str, dict[str, Any]] = {
    "llama-gqa": {},
    "llama-mqa-odd-vocab": {"num_key_value_heads": 1, "vocab_size": 509},
    "llama-head-dim-bias": {"head_dim": 24, "attention_bias": True, "mlp_bias": True},
    "llama-head-dim-80": {"head_dim": 80},
    "llama-head-dim-96-mha": {"head_dim": 96, "num_key_value_heads": 4},
    "llama-mlp-bias-alone": {"mlp_bias": True, "rms_norm_eps": 1e-3},
    "llama-gelu": {"hidden_act": "gelu_pytorch_tanh"},
    "llama-tied-llama3-rope": {"tie_word_embeddings": True, "rope_parameters": LLAMA3},
    "llama-yarn-rope": {"rope_parameters": YARN},
    "llama-yarn-mscale-rope": {
        "rope_parameters": YARN | {"mscale": 0.7, "mscale_all_dim": 0.5, "truncate": False}
    },
    "llama-linear-rope": {"rope_parameters": LINEAR},
    "llama-dynamic-rope": {"rope_parameters": DYNAMIC},
    "llama-proportional-rope": {"rope_parameters": PROPORTIONAL},
    "llama-longrope": {
        "rope_parameters": longrope(8, 128, attention_factor=1.2),
        "original_max_position_embeddings": 128,
    },
}
MISTRAL: dict[str, dict[str, Any]] = {
    "mistral-window": {"sliding_window": 24},
    "mistral-no-window": {"sliding_window": None, "head_dim": 40},
    "mistral-tied-yarn-mqa": {
        "sliding_window": None,
        "num_key_value_heads": 1,
        "tie_word_embeddings": True,
        "rope_parameters": YARN | {"mscale": 1.0, "mscale_all_dim": 1.0},
    },
}
QWEN2: dict[str, dict[str, Any]] = {
    "qwen2-tied": {"tie_word_embeddings": True},
    "qwen2-windows-from-layer": {
        "use_sliding_window": True,
        "sliding_window": 24,
        "max_window_layers": 1,
    },
    "qwen2-windows-by-type": {
        "use_sliding_window": True,
        "sliding_window": 20,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "rope_parameters": YARN,
    },
}
QWEN3: dict[str, dict[str, Any]] = {
    "qwen3": {"head_dim": 32},
    "qwen3-tied-bias-odd-vocab": {
        "head_dim": 16,
        "tie_word_embeddings": True,
        "attention_bias": True,
        "vocab_size": 509,
        "num_attention_heads": 6,
        "num_key_value_heads": 3,
    },
    "qwen3-windows-by-type-yarn": {
        "head_dim": 24,
        "use_sliding_window": True,
        "sliding_window": 20,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "rope_parameters": YARN,
    },
    "qwen3-window": {
        "head_dim": 16,
        "use_sliding_window": True,
        "sliding_window": 24,
        "max_window_layers": 1,
    },
}
GEMMA: dict[str, dict[str, Any]] = {
    "gemma": {"head_dim": 32},
    "gemma-mqa-untied": {
        "head_dim": 24,
        "num_key_value_heads": 1,
        "tie_word_embeddings": False,
        "attention_bias": True,
    },
}
GEMMA2_BASE: dict[str, Any] = {
    "head_dim": 24,
    "sliding_window": 24,
    "query_pre_attn_scalar": 40,
    "attn_logit_softcapping": 4.0,
    "final_logit_softcapping": 9.0,
}
GEMMA2: dict[str, dict[str, Any]] = {
    "gemma2": GEMMA2_BASE,
    "gemma2-no-caps-untied": GEMMA2_BASE
    | {
        "attn_logit_softcapping": None,
        "final_logit_softcapping": None,
        "tie_word_embeddings": False,
    },
    "gemma2-wide-heads": GEMMA2_BASE
    | {"head_dim": 256, "num_attention_heads": 2, "num_key_value_heads": 1},
    "gemma2-full-first": GEMMA2_BASE
    | {"layer_types": ["full_attention", "sliding_attention", "full_attention"], "vocab_size": 509},
}
GEMMA3_BASE: dict[str, Any] = {"head_dim": 24, "sliding_window": 24, "query_pre_attn_scalar": 40}
GEMMA3: dict[str, dict[str, Any]] = {
    "gemma3-pattern": GEMMA3_BASE | {"sliding_window_pattern": 3},
    "gemma3-scaled-full-layers": GEMMA3_BASE
    | {
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "rope_theta": 80_000.0, "factor": 8.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1_000.0},
        },
        "final_logit_softcapping": 9.0,
        "attn_logit_softcapping": 4.0,
        "tie_word_embeddings": False,
        "attention_bias": True,
    },
    "gemma3-six-layers-mqa": GEMMA3_BASE
    | {"num_hidden_layers": 6, "num_key_value_heads": 1, "vocab_size": 509},
}
PHI3: dict[str, dict[str, Any]] = {
    "phi3-window": {"sliding_window": 24, "num_key_value_heads": 4},
    "phi3-partial-tied": {
        "partial_rotary_factor": 0.75,
        "tie_word_embeddings": True,
        "vocab_size": 509,
    },
    "phi3-longrope-partial": {
        "partial_rotary_factor": 0.75,
        "rope_parameters": longrope(6, 128),
        "original_max_position_embeddings": 128,
    },
}
FAMILIES: dict[str, dict[str, dict[str, Any]]] = {
    "llama": LLAMA,
    "mistral": MISTRAL,
    "qwen2": QWEN2,
    "qwen3": QWEN3,
    "gemma": GEMMA,
    "gemma2": GEMMA2,
    "gemma3_text": GEMMA3,
    "phi3": PHI3,
}
DENSE: dict[str, dict[str, Any]] = {
    name: {"model_type": family} | options
    for family, variants in FAMILIES.items()
    for name, options in variants.items()
}
"""Every variant of the dense families: name -> what its config says beside BASE."""
ONE_EACH: tuple[str, ...] = tuple(next(iter(variants)) for variants in FAMILIES.values())
"""One variant of each family, for tests that need not run on all."""
