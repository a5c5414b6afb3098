"""Tiny mixtures of experts and latent-attention models: one variant for each option that changes
the arithmetic.

Experts are few and strongly unlike each other. A choice between two of them (or two groups) is the
same in float32 and float64 unless their scores are closer than rounding, about 1e-6. The thousand
choices of a run seldom come that near, but they do: a run whose seed drew such a tie differs from
transformers at that token, and so may transformers from itself. The tests' seeds have no tie
(`test_no_choice_hangs_on_rounding` moves every logit by more than rounding does).
"""

from typing import Any

YARN: dict[str, Any] = {
    "rope_type": "yarn",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "original_max_position_embeddings": 32,
    "mscale": 0.7,
    "mscale_all_dim": 0.9,
}
LATENT: dict[str, Any] = {
    "kv_lora_rank": 32,
    "q_lora_rank": 40,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 12,
    "num_key_value_heads": 4,
    "first_k_dense_replace": 1,
    "rms_norm_eps": 1e-3,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 24,
}
MIXTRAL: dict[str, dict[str, Any]] = {
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "mixtral-window-top-1": {
        "num_local_experts": 3,
        "num_experts_per_tok": 1,
        "sliding_window": 24,
        "vocab_size": 509,
    },
    "mixtral-tied-head-dim": {
        "num_local_experts": 4,
        "num_experts_per_tok": 3,
        "head_dim": 24,
        "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 2.0},
    },
}
QWEN2_MOE: dict[str, dict[str, Any]] = {
    "qwen2-moe": {
        "num_experts": 6,
        "num_experts_per_tok": 3,
        "moe_intermediate_size": 40,
        "shared_expert_intermediate_size": 72,
    },
    "qwen2-moe-dense-layers": {
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 40,
        "shared_expert_intermediate_size": 72,
        "mlp_only_layers": [1],
        "norm_topk_prob": True,
        "qkv_bias": False,
    },
    "qwen2-moe-windows-up-to-layer": {
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 40,
        "shared_expert_intermediate_size": 72,
        "num_hidden_layers": 4,
        "use_sliding_window": True,
        "sliding_window": 24,
        "max_window_layers": 2,
        "decoder_sparse_step": 2,
    },
}
QWEN3_MOE: dict[str, dict[str, Any]] = {
    "qwen3-moe-shares-of-all": {
        "num_experts": 6,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 40,
        "head_dim": 24,
        "norm_topk_prob": False,
    },
    "qwen3-moe-shares-of-chosen": {
        "num_experts": 5,
        "num_experts_per_tok": 3,
        "moe_intermediate_size": 40,
        "head_dim": 24,
        "norm_topk_prob": True,
        "attention_bias": True,
        "mlp_only_layers": [0],
    },
    "qwen3-moe-window-mqa-yarn": {
        "num_experts": 4,
        "num_experts_per_tok": 1,
        "moe_intermediate_size": 40,
        "num_key_value_heads": 1,
        "use_sliding_window": True,
        "sliding_window": 24,
        "rope_parameters": YARN,
    },
    "qwen3-moe-every-second-layer": {
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 40,
        "head_dim": 24,
        "decoder_sparse_step": 2,
        "use_sliding_window": True,
        "sliding_window": 24,
        "tie_word_embeddings": True,
    },
}
DEEPSEEK_V2: dict[str, dict[str, Any]] = {
    "deepseek-v2-greedy": LATENT
    | {"q_lora_rank": None, "routed_scaling_factor": 1.7, "n_shared_experts": 1},
    "deepseek-v2-grouped-yarn": LATENT
    | {
        "topk_method": "group_limited_greedy",
        "n_group": 4,
        "topk_group": 2,
        "routed_scaling_factor": 3.0,
        "rope_parameters": YARN,
        "vocab_size": 509,
        "attention_bias": True,
        "mlp_bias": True,
    },
}
DEEPSEEK_V3: dict[str, dict[str, Any]] = {
    "deepseek-v3-dense-bias-two-shared": LATENT
    | {
        "n_group": 2,
        "topk_group": 1,
        "first_k_dense_replace": 3,
        "n_shared_experts": 2,
        "attention_bias": True,
        "tie_word_embeddings": True,
        "rope_parameters": YARN | {"mscale_all_dim": 0.0},
    },
    "deepseek-v3": LATENT
    | {"n_group": 4, "topk_group": 2, "routed_scaling_factor": 2.5, "rope_parameters": YARN},
    "deepseek-v3-halves-no-norm": LATENT
    | {
        "q_lora_rank": None,
        "n_group": 1,
        "topk_group": 1,
        "rope_interleave": False,
        "norm_topk_prob": False,
        "routed_scaling_factor": 0.8,
        "first_k_dense_replace": 0,
    },
}
FAMILIES: dict[str, dict[str, dict[str, Any]]] = {
    "mixtral": MIXTRAL,
    "qwen2_moe": QWEN2_MOE,
    "qwen3_moe": QWEN3_MOE,
    "deepseek_v2": DEEPSEEK_V2,
    "deepseek_v3": DEEPSEEK_V3,
}
SPARSE: dict[str, dict[str, Any]] = {
    name: {"model_type": family} | options
    for family, variants in FAMILIES.items()
    for name, options in variants.items()
}
"""Every variant of the sparse families: name -> what its config says beside variants.BASE."""
LATENT_NAMES: tuple[str, ...] = (*DEEPSEEK_V2, *DEEPSEEK_V3)
EXPERT_NAMES: tuple[str, ...] = tuple(name for name in SPARSE if name not in LATENT_NAMES)
