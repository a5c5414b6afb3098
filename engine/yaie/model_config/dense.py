"""Readers of config.json for Llama, Mistral, Qwen and Phi, one small function per family.

Fields that a family's checkpoints omit have the family's default.
"""

from collections.abc import Callable

from yaie.model_config.decoder import Windows, decoder, layer_count, typed_windows, whole_heads
from yaie.model_config.decoder_config import ModelConfig
from yaie.model_config.fields import Raw, flag, optional_positive, require
from yaie.model_config.rope import rope_table


def llama(raw: Raw) -> ModelConfig:
    """Llama 2 and 3.x, and the many models with the same architecture."""
    bias = flag(raw, "attention_bias")
    return whole_heads(decoder(raw, qkv_bias=bias, out_bias=bias, mlp_bias=flag(raw, "mlp_bias")))


def mistral(raw: Raw) -> ModelConfig:
    """Mistral: Llama with one window for all layers (v0.1) or none."""
    require(raw.get("layer_types") is None, "layer_types", raw.get("layer_types"))
    raw = {"num_key_value_heads": 8, "sliding_window": 4096} | raw
    return whole_heads(decoder(raw, windows=same_window(raw)))


def qwen2(raw: Raw) -> ModelConfig:
    """Qwen2 and 2.5: biases of queries, keys and values; windows from a given layer on."""
    raw = {"num_key_value_heads": 32} | raw
    return whole_heads(decoder(raw, qkv_bias=True, windows=qwen_windows(raw)))


def qwen3(raw: Raw) -> ModelConfig:
    """Qwen3: heads of 128 and RMSNorm of each query and key head."""
    bias = flag(raw, "attention_bias")
    raw = {"num_key_value_heads": 32, "head_dim": 128} | raw
    windows = qwen_windows(raw)
    return whole_heads(decoder(raw, qk_norm=True, qkv_bias=bias, out_bias=bias, windows=windows))


def phi3(raw: Raw) -> ModelConfig:
    """Phi-3 and Phi-4: partial rotation, and longrope under three names."""
    table = dict(rope_table(raw))
    if table.get("rope_type", table.get("type")) in {"su", "yarn"}:
        table["rope_type"] = "longrope"
    defaults = {"original_max_position_embeddings": 4096, "rms_norm_eps": 1e-5}
    raw = defaults | raw | {"rope_scaling": table}
    return decoder(raw, windows=same_window(raw))


def same_window(raw: Raw) -> Windows:
    """One window, or none, for all layers."""
    return (optional_positive(raw, "sliding_window"),) * layer_count(raw)


def qwen_windows(
    raw: Raw, windowed: Callable[[int, int], bool] = lambda layer, first: layer >= first
) -> Windows:
    """The windows of Qwen models: none unless `use_sliding_window`.

    `layer_types` says which layers have a window; if it is absent,
    `windowed(layer, max_window_layers)` decides.
    """
    raw = {"sliding_window": 4096, "max_window_layers": 28} | raw
    used = flag(raw, "use_sliding_window") and raw["sliding_window"] is not None
    border = raw["max_window_layers"]
    require(isinstance(border, int), "max_window_layers", border)
    return typed_windows(
        raw if used else raw | {"sliding_window": None}, lambda i: used and windowed(i, border)
    )
