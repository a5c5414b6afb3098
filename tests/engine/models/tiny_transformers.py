"""A tiny random model of any type that transformers registers, made from the type's own defaults:
every size that its configuration names is shrunk, by name, at any depth.
"""

from typing import Any

import torch
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

LAYERS, HEADS, HEAD_DIM, HIDDEN, VOCAB, POSITIONS = 4, 4, 16, 64, 320, 256
LAYER_NAMES = (
    "num_hidden_layers", "num_layers", "n_layer", "n_layers", "decoder_layers",
    "encoder_layers", "num_blocks", "depth",
)  # fmt: skip
SIZES: tuple[tuple[int, tuple[str, ...]], ...] = (
    (HEADS, (
        "num_attention_heads", "n_head", "n_heads", "num_heads", "decoder_attention_heads",
        "encoder_attention_heads", "attention_heads", "mamba_num_heads", "index_n_heads",
    )),
    (2, (
        "num_key_value_heads", "num_kv_heads", "n_kv_heads", "num_experts_per_tok", "moe_topk",
        "top_k_experts", "n_group", "topk_group", "num_hash_layers",
    )),
    (1, ("n_groups", "mamba_n_groups", "first_k_dense_replace", "moe_layer_start_index")),
    (HEAD_DIM, (
        "head_dim", "kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim",
        "attention_head_dim", "global_head_dim", "swa_head_dim", "index_head_dim", "rotary_dim",
        "kv_channels", "state_size", "ssm_state_size", "mamba_d_state", "linear_key_head_dim",
        "linear_value_head_dim", "swa_v_head_dim", "v_channels", "hidden_size_per_layer_input",
        "laurel_rank",
    )),
    (24, ("q_lora_rank",)),
    (16, ("mamba_chunk_size", "chunk_size")),
    (HIDDEN, (
        "hidden_size", "d_model", "n_embd", "dim", "embedding_size", "emb_dim", "embed_dim",
        "word_embed_proj_dim", "input_embedding_size", "dim_model", "lru_width",
        "attention_hidden_size",
    )),
    (96, (
        "intermediate_size", "ffn_dim", "d_ff", "n_inner", "ffn_hidden_size", "decoder_ffn_dim",
        "encoder_ffn_dim", "moe_intermediate_size", "dim_ff", "d_inner", "expert_ffn_hidden_size",
        "shared_expert_intermediate_size", "moe_shared_expert_intermediate_size",
        "dense_intermediate_size", "intermediate_size_mlp", "block_ff_dim",
        "shared_intermediate_size", "feed_forward_size",
    )),
    (8, (
        "num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts",
    )),
    (4, (
        "conv_kernel", "mamba_d_conv", "linear_num_key_heads", "linear_num_value_heads",
        "conv1d_width",
    )),
    (VOCAB, ("vocab_size", "n_vocab", "vocab_size_per_layer_input")),
    (POSITIONS, (
        "max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "n_ctx",
        "max_target_positions", "max_source_positions", "max_sequence_length", "n_embd_ctx",
    )),
    (12, (
        "sliding_window", "attention_window_size", "local_attention", "window_size",
        "attention_chunk_size",
    )),
)  # fmt: skip
BY_NAME = {name: size for size, names in SIZES for name in names}
DROPPED = ("model_type", "transformers_version", "architectures", "dtype", "_name_or_path")
IDS = ("id2label", "label2id")
FIXED = dict.fromkeys(LAYER_NAMES, LAYERS) | {"is_decoder": True}

MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 16, "mamba_expand": 2}
ZAMBA = {
    "attention_hidden_size": 2 * HIDDEN,
    "attention_head_dim": 2 * HEAD_DIM,
    "layers_block_type": ["linear_attention", "hybrid"] * 2,
}
HYBRID = {
    "linear_num_heads": 4,
    "linear_head_dim": 16,
    "layer_types": ["linear_attention", "full_attention"] * 2,
    "num_experts_per_token": 2,
}
INDEXED = {
    "indexer_n_heads": 4,
    "indexer_kv_heads": 1,
    "indexer_head_dim": 16,
    "indexer_budget": 16,
    "indexer_compress_ratio": 4,
}
SPECIAL: dict[str, dict[str, Any]] = {
    "bamba": MAMBA,
    "granitemoehybrid": MAMBA | {"layer_types": ["linear_attention", "full_attention"] * 2},
    "mamba2": {"num_heads": 8, "head_dim": 16, "expand": 2},
    "hunyuan_v1_dense": {"head_dim": 16},
    "hunyuan_v1_moe": {"head_dim": 16},
    "ministral": {"head_dim": 16},
    "nemotron": {"num_key_value_heads": 2},
    "xlnet": {"d_head": 16},
    "xlstm": {"embedding_dim": HIDDEN, "autocast_kernel_dtype": "float32"},
    "xmod": {"default_language": "en_XX"},
    "zamba": ZAMBA | {"mamba_dt_rank": 4},
    "zamba2": ZAMBA | {"mamba_headdim": 16, "kv_channels": 32, "hybrid_layer_ids": [1, 3]},
    "deepseek_v2": {"num_experts_per_tok": 2},
    "dbrx": {"attn_config": {"rope_theta": 10_000.0, "kv_n_heads": 2, "clip_qkv": 8.0}},
    "dots1": {
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 48,
        "n_shared_experts": 1,
    },
    "cohere_compass_text": {
        "rope_parameters": {
            kind: {"rope_type": "default", "rope_theta": 10_000.0}
            for kind in ("full_attention", "sliding_attention")
        },
    },
    "lfm2_moe": {"layer_types": ["conv", "conv", "full_attention", "conv"]},
    "reformer": {"axial_pos_embds_dim": [16, 48], "axial_pos_shape": [16, 16]},
    "longcat_flash": {
        "qk_head_dim": 32,
        "n_routed_experts": 8,
        "zero_expert_num": 4,
        "num_key_value_heads": 4,
    },
    "kimi_linear": HYBRID,
    "bailing_hybrid": HYBRID | {"num_expert_group": 2, "topk_group": 2},
    "qwen4_exp_text": INDEXED,
    "qwen4_exp": {"text_config": INDEXED},
    "dots3_note_text": {"head_dim": 32},
    "dots3_note": {
        "text_config": {"head_dim": 32},
        "vision_config": {"adapter_in_dim": HIDDEN, "adapter_out_dim": HIDDEN},
        "audio_config": {"adapter_input_size": HIDDEN, "adapter_out_dim": HIDDEN},
    },
    "blt": {
        "encoder_hash_byte_group_vocab": 320,
        "encoder_config": {"hidden_size_global": 64},
        "decoder_config": {"hidden_size_global": 64},
    },
    "gemma3n": {"text_config": {"intermediate_size": 96, "num_kv_shared_layers": 1}},
    "gemma3n_text": {"intermediate_size": 96, "num_kv_shared_layers": 1},
}
"""What some types need beside: sizes that must fit each other in their own way."""

INCOMPLETE: dict[str, dict[str, Any]] = {
    "gemma4_assistant": {
        "text_config": {
            "hidden_size_per_layer_input": 0,
            "vocab_size_per_layer_input": 0,
            "num_hidden_layers": LAYERS,
            "num_kv_shared_layers": LAYERS,
        },
    },
}
"""Types whose own defaults their own class refuses, with what it asks for."""


def tiny_config(kind: str) -> Any:
    """The configuration of a tiny model of type `kind`."""
    cls = CONFIG_MAPPING[kind]
    defaults = cls(**INCOMPLETE.get(kind, {})).to_dict()
    settings: dict[str, Any] = _merged(_shrunk(defaults), SPECIAL.get(kind, {}))
    for name in DROPPED:
        settings.pop(name, None)
    return cls(**settings)


@torch.no_grad()
def tiny_model(kind: str) -> Any:
    """A random float32 model of type `kind`, always the same, ready to be saved."""
    torch.manual_seed(7)
    model = AutoModelForCausalLM.from_config(tiny_config(kind), dtype=torch.float32)
    for name, parameter in model.named_parameters():
        if "norm" in name or "ln_" in name:
            parameter.uniform_(0.5, 1.5)
        elif name.endswith("bias") or parameter.dim() >= 2:
            parameter.normal_(0.0, 0.3)
    model.tie_weights()
    return model.eval()


def _merged(table: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """`table` with `changes`, at any depth."""
    inner = {
        name: _merged(table[name], value)
        for name, value in changes.items()
        if isinstance(value, dict) and isinstance(table.get(name), dict)
    }
    return table | changes | inner


def _shrunk(table: dict[str, Any]) -> dict[str, Any]:
    layers = next((table[name] for name in LAYER_NAMES if isinstance(table.get(name), int)), None)
    kept = {name: value for name, value in table.items() if name not in IDS}
    small = {name: _small(name, value, layers) for name, value in kept.items()}
    if "kv_lora_rank" in small and "num_key_value_heads" in small:
        small["num_key_value_heads"] = HEADS  # latent attention groups no heads
    return small


def _small(name: str, value: Any, layers: int | None) -> Any:
    if isinstance(value, dict) and not name.startswith("rope_"):
        by_layer = name == "per_layer_config"
        kept = {key: one for key, one in value.items() if not by_layer or int(key) < LAYERS}
        return {key: _shrunk(one) for key, one in kept.items()} if by_layer else _shrunk(kept)
    if isinstance(value, list):
        return value[:LAYERS] if len(value) == layers else value
    if name in FIXED:
        return FIXED[name]
    if not isinstance(value, int) or isinstance(value, bool):
        return value
    if name.endswith("token_id"):
        return min(value, VOCAB - 1)
    return min(value, BY_NAME.get(name, value))
