"""Readers of config.json for Mixtral, Qwen's mixtures of experts and DeepSeek, one small function
per family. Fields that a family's checkpoints omit have the family's default.
"""

import math
from typing import Any

from yaie.model_config.decoder import Windows, decoder, layer_count, whole_heads
from yaie.model_config.decoder_config import ModelConfig
from yaie.model_config.dense import qwen_windows, same_window
from yaie.model_config.fields import (
    Raw,
    flag,
    malformed,
    number,
    optional_positive,
    positive,
    require,
)
from yaie.model_config.moe import MLAConfig, MoEConfig
from yaie.model_config.rope import RopeConfig, read_rope


def mixtral(raw: Raw) -> ModelConfig:
    """Mixtral: experts in every layer; the shares of the chosen ones sum to one."""
    defaults = {"rms_norm_eps": 1e-5, "num_local_experts": 8, "num_key_value_heads": 8}
    raw = defaults | {"rope_theta": 1e6} | raw
    moe = _experts(
        raw,
        positive(raw, "num_local_experts"),
        default=2,
        intermediate_size=positive(raw, "intermediate_size"),
        sparse=(True,) * layer_count(raw),
        normalize=True,
    )
    return whole_heads(_sparse(raw, moe, windows=same_window(raw)))


def qwen2_moe(raw: Raw) -> ModelConfig:
    """Qwen1.5 and Qwen2 mixtures: a shared expert with a gate, and windows in every second layer
    below `max_window_layers` (in dense Qwen2: in all layers from there on).
    """
    raw = {"num_key_value_heads": 16, "moe_intermediate_size": 1408} | raw
    shared = positive(raw, "shared_expert_intermediate_size", default=5632)
    moe = _qwen_experts(raw, 60, default=4, shared_size=shared, shared_gate=True)
    bias = flag(raw, "qkv_bias", default=True)
    windows = qwen_windows(raw, lambda layer, border: layer % 2 == 0 and layer < border)
    return whole_heads(_sparse(raw, moe, qkv_bias=bias, windows=windows))


def qwen3_moe(raw: Raw) -> ModelConfig:
    """Qwen3 mixtures: RMSNorm of each query and key head, one window for all layers or none."""
    bias = flag(raw, "attention_bias")
    defaults = {"num_key_value_heads": 4, "moe_intermediate_size": 768}
    raw = defaults | {"sliding_window": 4096} | raw
    windowed = flag(raw, "use_sliding_window")
    windows: Windows = same_window(raw) if windowed else (None,) * layer_count(raw)
    moe = _qwen_experts(raw, 128, default=8)
    own = {"qk_norm": True, "qkv_bias": bias, "out_bias": bias, "windows": windows}
    return whole_heads(_sparse(raw, moe, **own))


def deepseek_v2(raw: Raw) -> ModelConfig:
    """DeepSeek-V2: softmax scores; the best experts overall, or within the best groups."""
    method = raw.get("topk_method") or "greedy"
    require(method in {"greedy", "group_limited_greedy"}, "topk_method", method)
    require(raw.get("scoring_func", "softmax") == "softmax", "scoring_func", raw)
    normalize = flag(raw, "norm_topk_prob")
    # reference implementations disagree about norm_topk_prob, and no known model sets it
    require(not normalize, "norm_topk_prob", normalize)
    grouped = method == "group_limited_greedy"
    defaults = {"n_routed_experts": 64, "n_shared_experts": 2, "moe_intermediate_size": 1407}
    raw = defaults | {"first_k_dense_replace": 0} | raw
    moe = _deepseek_experts(
        raw,
        groups=positive(raw, "n_group") if grouped else 1,
        kept_groups=positive(raw, "topk_group") if grouped else 1,
        scale=number(raw, "routed_scaling_factor", 1.0),
    )
    return _latent(raw, moe, interleaved=True, mlp_bias=flag(raw, "mlp_bias"))


def deepseek_v3(raw: Raw) -> ModelConfig:
    """DeepSeek-V3 and R1, Kimi K2, Moonlight: sigmoid scores, and a bias that balances the load
    (auxiliary-loss-free load balancing, arXiv:2408.15664).
    """
    method = raw.get("topk_method") or "noaux_tc"
    require(method == "noaux_tc", "topk_method", method)
    require(raw.get("scoring_func", "sigmoid") == "sigmoid", "scoring_func", raw)
    defaults = {"n_routed_experts": 256, "n_shared_experts": 1, "moe_intermediate_size": 2048}
    defaults |= {"first_k_dense_replace": 3, "num_experts_per_tok": 8, "n_group": 8}
    raw = defaults | {"topk_group": 4} | raw
    moe = _deepseek_experts(
        raw,
        scoring="sigmoid",
        correction_bias=True,
        normalize=flag(raw, "norm_topk_prob", default=True),
        groups=positive(raw, "n_group"),
        kept_groups=positive(raw, "topk_group"),
        group_best=2,
        scale=number(raw, "routed_scaling_factor", 2.5),
    )
    interleaved = flag(raw, "rope_interleave", default=True)
    extra = _count(raw, "num_nextn_predict_layers", default=1)
    return _latent(raw, moe, interleaved=interleaved, extra_layers=extra)


def _sparse(raw: Raw, moe: MoEConfig, **own: Any) -> ModelConfig:
    require(raw.get("hidden_act", "silu") == "silu", "hidden_act", raw.get("hidden_act"))
    return decoder(raw, moe=moe, **own)


def _experts(raw: Raw, count: int, *, default: int, **own: Any) -> MoEConfig:
    """Build a MoEConfig of `count` experts. `default`: experts per token, if not in config.json."""
    chosen = positive(raw, "num_experts_per_tok", default=default)
    moe = MoEConfig(num_experts=count, experts_per_token=chosen, **own)
    require(count % moe.groups == 0, "n_group", moe.groups)
    require(moe.kept_groups <= moe.groups, "topk_group", moe.kept_groups)
    require(count // moe.groups >= moe.group_best, "n_group", moe.groups)
    choices = count // moe.groups * moe.kept_groups
    require(chosen <= choices, "num_experts_per_tok", chosen)
    return moe


def _qwen_experts(raw: Raw, count: int, *, default: int, **own: Any) -> MoEConfig:
    """Experts in every `decoder_sparse_step`th layer, except those in `mlp_only_layers`."""
    layers, step = layer_count(raw), positive(raw, "decoder_sparse_step", default=1)
    dense = raw.get("mlp_only_layers") or []
    require(isinstance(dense, list), "mlp_only_layers", dense)
    return _experts(
        raw,
        positive(raw, "num_experts", default=positive(raw, "num_local_experts", default=count)),
        default=default,
        intermediate_size=positive(raw, "moe_intermediate_size"),
        sparse=tuple(i not in dense and (i + 1) % step == 0 for i in range(layers)),
        normalize=flag(raw, "norm_topk_prob"),
        **own,
    )


def _deepseek_experts(raw: Raw, **own: Any) -> MoEConfig:
    """Experts in every `moe_layer_freq`th layer from `first_k_dense_replace` on."""
    first = _count(raw, "first_k_dense_replace")
    step = positive(raw, "moe_layer_freq", default=1)
    inner = positive(raw, "moe_intermediate_size")
    return _experts(
        raw,
        positive(raw, "n_routed_experts"),
        default=6,
        intermediate_size=inner,
        sparse=tuple(i >= first and i % step == 0 for i in range(layer_count(raw))),
        float32_router=True,
        shared_size=inner * _count(raw, "n_shared_experts"),
        **own,
    )


def _latent(raw: Raw, moe: MoEConfig, *, interleaved: bool, **own: Any) -> ModelConfig:
    """Build the config of a decoder with latent attention."""
    bias, rank = flag(raw, "attention_bias"), 1536 if "q_lora_rank" not in raw else None
    rank = rank or optional_positive(raw, "q_lora_rank")
    # without a q latent, not all projections would have the bias
    require(not (bias and rank is None), "attention_bias", bias)
    mla = MLAConfig(
        kv_lora_rank=positive(raw, "kv_lora_rank", default=512),
        q_lora_rank=rank,
        qk_nope_head_dim=positive(raw, "qk_nope_head_dim", default=128),
        qk_rope_head_dim=positive(raw, "qk_rope_head_dim", default=64),
        v_head_dim=positive(raw, "v_head_dim", default=128),
        interleaved=interleaved,
        bias=bias,
    )
    rotated, longest = mla.qk_rope_head_dim, positive(raw, "max_position_embeddings")
    rope = read_rope(raw, head_dim=rotated, max_positions=longest)
    heads = positive(raw, "num_attention_heads")
    raw = raw | {"head_dim": rotated, "num_key_value_heads": heads}
    own |= {"mla": mla, "ropes": (rope,) * layer_count(raw)}
    scale = mla.qk_head_dim**-0.5 * _mscale(rope) ** 2
    return whole_heads(_sparse(raw, moe, attention_scale=scale, **own))


def _mscale(rope: RopeConfig) -> float:
    """Return DeepSeek's factor of queries and of keys for YaRN, 0.1 m ln(factor) + 1, whose square
    multiplies the scale of attention.
    """
    if rope.kind == "default" or not rope.mscale_all_dim or rope.factor <= 1:
        return 1.0
    return 0.1 * rope.mscale_all_dim * math.log(rope.factor) + 1.0


def _count(raw: Raw, name: str, *, default: int = 0) -> int:
    """Return a non-negative integer; null and absent mean `default`."""
    value = default if raw.get(name) is None else raw[name]
    if isinstance(value, int) and not isinstance(value, bool) and value == 0:
        return 0
    if value is None:
        raise malformed(name, value)
    return positive({name: value}, name)
