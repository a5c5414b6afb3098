"""A native model's shape, read from config.json by ourselves: no transformers, no code from the
model's folder. Unknown or unsupported settings are refused with the setting's name.
"""

import sys
from typing import Any, Literal

import msgspec

from yaie_api.errors import InvalidRequestError

RopeKind = Literal["default", "linear", "llama3", "yarn"]
MAX_LAYERS = 1024
"""Far above any real model: a hostile number must not make us build a billion of anything."""
ROPE_KINDS: tuple[str, ...] = ("default", "linear", "llama3", "yarn")


class RopeConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Rotary embedding parameters; each kind reads the fields it needs."""

    kind: RopeKind = "default"
    theta: float = 10_000.0
    factor: float = 1.0
    original_max_positions: int = 0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True


class ModelConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Shape of a dense decoder. `windows[i]`: how far back layer i sees, None for everything."""

    architecture: str
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_positions: int
    rms_norm_eps: float
    rope: RopeConfig
    windows: tuple[int | None, ...]
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    dtype: str | None = None

    @property
    def q_size(self) -> int:
        """Width of all query heads together."""
        return self.num_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        """Width of all key heads together (values are as wide)."""
        return self.num_kv_heads * self.head_dim


def parse(raw: dict[str, Any]) -> ModelConfig:
    """Turn the content of config.json into a ModelConfig.

    Raises:
        InvalidRequestError: a field is missing, has a wrong type, or asks for what no native model
            here does.

    """
    architecture = _architecture(raw)
    qwen3 = architecture == "Qwen3ForCausalLM"
    _require(raw.get("hidden_act", "silu") == "silu", "hidden_act", raw.get("hidden_act"))
    hidden, heads = _positive(raw, "hidden_size"), _positive(raw, "num_attention_heads")
    layers = _positive(raw, "num_hidden_layers")
    _require(layers <= MAX_LAYERS, "num_hidden_layers", layers)
    kv_heads = _positive(raw, "num_key_value_heads", default=heads)
    _require(heads % kv_heads == 0, "num_key_value_heads", kv_heads)
    head_dim = _positive(raw, "head_dim", default=128 if qwen3 else hidden // heads)
    _require(head_dim % 2 == 0, "head_dim", head_dim)
    max_positions = _positive(raw, "max_position_embeddings")
    return ModelConfig(
        architecture=architecture,
        hidden_size=hidden,
        intermediate_size=_positive(raw, "intermediate_size"),
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        vocab_size=_positive(raw, "vocab_size"),
        max_positions=max_positions,
        rms_norm_eps=_number(raw, "rms_norm_eps", 1e-6),
        rope=_rope(raw, max_positions),
        windows=_windows(raw, layers) if qwen3 else (None,) * layers,
        tie_word_embeddings=bool(raw.get("tie_word_embeddings", False)),
        attention_bias=bool(raw.get("attention_bias", False)),
        mlp_bias=not qwen3 and bool(raw.get("mlp_bias", False)),
        qk_norm=qwen3,
        dtype=raw.get("dtype") or raw.get("torch_dtype"),
    )


def _architecture(raw: dict[str, Any]) -> str:
    names = raw.get("architectures")
    if not isinstance(names, list) or len(names) != 1 or not isinstance(names[0], str):
        raise InvalidRequestError(
            "config.json must name exactly one architecture in 'architectures'.", param="model"
        )
    return names[0]


def _rope(raw: dict[str, Any], max_positions: int) -> RopeConfig:
    """Read `rope_parameters` (new) or `rope_scaling` beside `rope_theta` (old)."""
    table = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    _require(isinstance(table, dict), "rope_parameters", table)
    kind = table.get("rope_type", table.get("type", "default"))
    _require(kind in ROPE_KINDS, "rope_type", kind)
    _require(_number(table, "partial_rotary_factor", 1.0) == 1.0, "partial_rotary_factor", table)
    theta = _number(table, "rope_theta", _number(raw, "rope_theta", 10_000.0))
    original = _positive(table, "original_max_position_embeddings", default=max_positions)
    return RopeConfig(
        kind=kind,
        theta=theta,
        factor=_number(table, "factor", max_positions / original),
        original_max_positions=original,
        low_freq_factor=_number(table, "low_freq_factor", 1.0),
        high_freq_factor=_number(table, "high_freq_factor", 4.0),
        beta_fast=_number(table, "beta_fast", 32.0),
        beta_slow=_number(table, "beta_slow", 1.0),
        attention_factor=_optional_number(table, "attention_factor"),
        mscale=_optional_number(table, "mscale"),
        mscale_all_dim=_optional_number(table, "mscale_all_dim"),
        truncate=bool(table.get("truncate", True)),
    )


def _windows(raw: dict[str, Any], layers: int) -> tuple[int | None, ...]:
    if not raw.get("use_sliding_window") or raw.get("sliding_window") is None:
        return (None,) * layers
    window = _positive(raw, "sliding_window")
    kinds = raw.get("layer_types")
    if kinds is None:
        first = _positive(raw, "max_window_layers", default=28)
        kinds = ["sliding_attention" if i >= first else "full_attention" for i in range(layers)]
    _require(len(kinds) == layers, "layer_types", kinds)
    return tuple(window if kind == "sliding_attention" else None for kind in kinds)


def _positive(raw: dict[str, Any], name: str, *, default: int | None = None) -> int:
    value = raw.get(name)
    value = default if value is None else value
    valid = isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**31
    _require(valid, name, value)
    assert value is not None  # noqa: S101 - _require refused None; this tells the type checker
    return value


def _number(raw: dict[str, Any], name: str, default: float) -> float:
    value = raw.get(name)
    value = default if value is None else value
    valid = isinstance(value, int | float) and not isinstance(value, bool)
    _require(valid and abs(value) <= sys.float_info.max, name, value)
    return float(value)


def _optional_number(raw: dict[str, Any], name: str) -> float | None:
    return None if raw.get(name) is None else _number(raw, name, 0.0)


def _require(holds: bool, name: str, value: object) -> None:  # noqa: FBT001 - a bare condition
    if not holds:
        shown = repr(value)[:80]
        raise InvalidRequestError(
            f"config.json: {name} = {shown} is missing, malformed or not supported.", param="model"
        )
