"""Readers of config.json for Gemma 1, 2 and 3.

All three add 1 to the weights of RMSNorm, scale embeddings by the square root of their width, and
have wide heads. Hub configs of Gemma 3 omit fields that have the family's default.
"""

from typing import Any

from yaie.model_config.decoder import (
    GELU_TANH,
    Windows,
    activation,
    decoder,
    typed_windows,
    whole_heads,
)
from yaie.model_config.decoder_config import ModelConfig
from yaie.model_config.fields import (
    Raw,
    flag,
    malformed,
    number,
    optional_number,
    positive,
    require,
)
from yaie.model_config.rope import RopeConfig, read_table, rope_table

DEFAULTS: Raw = {"head_dim": 256, "tie_word_embeddings": True}
GEMMA: Raw = DEFAULTS | {"num_key_value_heads": 16}
GEMMA2: Raw = DEFAULTS | {
    "num_key_value_heads": 4,
    "sliding_window": 4096,
    "attn_logit_softcapping": 50.0,
    "final_logit_softcapping": 30.0,
}
GEMMA3: Raw = DEFAULTS | {
    "sliding_window": 4096,
    "vocab_size": 262_208,
    "max_position_embeddings": 131_072,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
}


def gemma(raw: Raw) -> ModelConfig:
    """Gemma 1. Its configs name gelu, but the models use the tanh approximation."""
    raw = GEMMA | raw
    if raw.get("hidden_act") == "gelu":
        raw["hidden_act"] = GELU_TANH
    return _decoder(raw, activation=activation(raw, "hidden_act", GELU_TANH))


def gemma2(raw: Raw) -> ModelConfig:
    """Gemma 2: every second layer has a window; scores and logits are soft-capped."""
    raw = GEMMA2 | raw
    cap = optional_number(raw, "attn_logit_softcapping")
    return _later(raw, attention_softcap=cap, windows=typed_windows(raw, lambda i: i % 2 == 0))


def gemma3(raw: Raw) -> ModelConfig:
    """Gemma 3 text: head norms; five windowed layers per full one, each kind with its rotary base.

    `attn_logit_softcapping` has no effect, as in the reference implementation, where head norms
    replaced it.
    """
    raw = GEMMA3 | raw
    pattern = positive(raw, "sliding_window_pattern", default=6)
    windows = typed_windows(raw, lambda i: (i + 1) % pattern > 0)
    return _later(raw, qk_norm=True, windows=windows, ropes=_two_ropes(raw, windows))


def gemma3_text(raw: Raw) -> ModelConfig:
    """Gemma 3 for text and images, as a text model: reads its `text_config`."""
    text = raw.get("text_config")
    if not isinstance(text, dict):
        raise malformed("text_config", text)
    outer = {name: raw[name] for name in ("dtype", "torch_dtype") if name in raw}
    tied = flag(raw, "tie_word_embeddings", default=True)  # that of text_config has no effect
    return gemma3(text | outer | {"tie_word_embeddings": tied})


def _decoder(raw: Raw, **own: Any) -> ModelConfig:
    bias = flag(raw, "attention_bias")
    scale = positive(raw, "hidden_size") ** 0.5
    return whole_heads(
        decoder(raw, norm_offset=1.0, embedding_scale=scale, qkv_bias=bias, out_bias=bias, **own)
    )


def _later(raw: Raw, **own: Any) -> ModelConfig:
    """Read settings of Gemma 2 and 3: the scale of attention and the soft cap of logits."""
    scalar = number(raw, "query_pre_attn_scalar", 256)
    require(scalar > 0, "query_pre_attn_scalar", scalar)
    return _decoder(
        raw,
        activation=activation(raw, "hidden_activation", GELU_TANH),
        attention_scale=scalar**-0.5,
        logit_softcap=optional_number(raw, "final_logit_softcapping"),
        **own,
    )


def _two_ropes(raw: Raw, windows: Windows) -> tuple[RopeConfig, ...]:
    """Read the rotary embeddings of full and of windowed layers.

    New configs have `rope_parameters` with a table per layer type. In old configs `rope_scaling`
    applies to full layers, and windowed layers have only `rope_local_base_freq`.
    """
    tables = raw.get("rope_parameters") or {}
    scaling = rope_table({"rope_scaling": raw.get("rope_scaling")})
    if not isinstance(tables, dict):
        raise malformed("rope_parameters", tables)
    require(not tables or "full_attention" in tables, "rope_parameters", tables)
    both = {"partial_rotary_factor": raw.get("partial_rotary_factor")}
    full = both | (tables.get("full_attention") or {}) | scaling
    local = both | (tables.get("sliding_attention") or {})
    sizes = {
        "head_dim": positive(raw, "head_dim"),
        "max_positions": positive(raw, "max_position_embeddings"),
    }
    wide = read_table(full, theta=number(raw, "rope_theta", 1_000_000.0), **sizes)
    narrow = read_table(local, theta=number(raw, "rope_local_base_freq", 10_000.0), **sizes)
    # The reference implementation ignores `truncate` in tables by layer type.
    require(wide.truncate and narrow.truncate, "truncate", False)
    return tuple(wide if window is None else narrow for window in windows)
